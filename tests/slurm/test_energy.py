"""Nodes whose energy Slurm measures: the truth is a counter that draws 100 W on each node (see energy.sh)."""

from __future__ import annotations

from typing import Any

import pytest

from accelsweep.analysis.collect import read_runs
from accelsweep.features.accounting.sacct import accounts
from accelsweep.records.plan import Manifest

WATTS = 100.0
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.long,  # a cluster that measures energy is started for it; only Slurm shows what its steps sum up
    pytest.mark.usefixtures("metered"),
]


def about(nodes: int, seconds: float) -> Any:
    """The joules of so many nodes, within the second to which Slurm knows times, at both ends."""
    return pytest.approx(WATTS * nodes * seconds, abs=2 * WATTS * nodes)


def submitted(home: Any, *arguments: str) -> str:
    job: str = home.slurm("sbatch", "--parsable", f"--chdir={home.path}", "--output=/dev/null", *arguments).strip()
    return job


def test_the_energy_of_a_job_is_that_of_all_its_nodes_for_all_its_time_and_no_step_counts_twice(home: Any) -> None:
    alone = submitted(home, "--wrap=sleep 4; srun sleep 4")
    two = submitted(home, "--partition=gpu", "--nodes=2", "--wrap=srun sleep 8")
    home.wait_for(
        lambda: all(one.reason is None for one in accounts(home.folder, [alone, two]).values()), "the accounts", 60
    )
    found = accounts(home.folder, [alone, two])
    assert {found[job].elapsed_seconds >= 8 for job in (alone, two)} == {True}
    assert found[alone].energy_joules == about(1, found[alone].elapsed_seconds)
    assert found[two].energy_joules == about(2, found[two].elapsed_seconds)


def test_a_sweeps_runs_have_the_energy_of_their_job_with_slurm_as_its_source(home: Any) -> None:
    home.run()
    rows = read_runs(home.folder, Manifest.read(home.folder.manifest))
    assert rows
    for row in rows:
        energy, elapsed = (row.metrics[name] for name in ("job_energy_joules", "job_elapsed_seconds"))
        assert energy.value == about(1, elapsed.value)
        assert energy.provenance == "slurm"
    assert "Energy of the whole job" in (home.folder.report / "index.html").read_text()
