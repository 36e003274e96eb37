"""A training script of the user's own goes through Slurm: on one node, on several, and in another environment."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest
from environments import environment
from projects import copy_project

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome

pytestmark = [pytest.mark.slurm, pytest.mark.long]  # end_to_end/test_entry_point.py measures scripts on this machine

SHORT = (
    "batch_size=64",
    "repeats=1",
    "measure.warmup_steps=3",
    "measure.min_steps=20",
    "measure.min_seconds=0.2",
    "measure.quality_samples=null",
    "measure.probe_steps=4",
)


@pytest.fixture
def project(home):
    """A project whose batch is divided by the ranks, in a home of the cluster, of which only the sites remain."""
    copy_project("hydra_template", home.path)
    shutil.rmtree(home.path / "conf" / "experiment")
    (home.path / "accelsweep.yaml").write_text("batch_is: global\n")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        home.environment.pop(name, None)
    return home


def measured(project, name: str, *overrides: str) -> Mapping[str, Record]:
    """Run a sweep to its end, which must be a good one; return its records."""
    command = ("run", "site=box", "--profile", "quick", "--name", name, *SHORT, *overrides)
    done = project.accelsweep(*command)
    folder = SweepFolder(project.path, name)
    logs = "".join(path.read_text() for path in folder.root.glob("runs/*/run.log"))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{project.log()}{logs}"
    records = {run: Record.read(folder.record(run)) for run in Manifest.read(folder.manifest).wanted_runs()}
    assert {record.outcome for record in records.values()} == {Outcome.measured}
    return records


def test_a_script_is_measured_in_jobs_on_one_node_and_on_two(project) -> None:
    records = measured(project, "own", "devices=1,2", "num_nodes=1,2").values()
    assert {(record.effective.num_nodes, record.effective.world_size) for record in records} == {
        (1, 1),
        (1, 2),
        (2, 2),
        (2, 4),
    }
    assert {record.effective.batch_size * record.effective.world_size for record in records} == {64}
    assert {record.effective.launcher for record in records if record.effective.num_nodes == 1} == {"fork"}


def test_another_environment_runs_the_ranks_of_both_nodes(project) -> None:
    python = environment(project.path / ".venv", "only-there")
    script = project.path / "src" / "train.py"
    script.write_text(f"import sys\nprint('run by', sys.prefix, flush=True)\n{script.read_text()}")
    (record,) = measured(project, "other", "num_nodes=2").values()
    assert (record.effective.num_nodes, record.effective.world_size) == (2, 2)
    log = (SweepFolder(project.path, "other").run(record.run) / "run.log").read_text()
    assert log.count(f"run by {project.path / '.venv'}\n") == 2, python
