"""A cluster with accounts: what it refuses and why, in its own words, and what it says of jobs that have ended."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelsweep.config.site import Site
from accelsweep.features.accounting.sacct import NO_ENERGY, accounts
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Outcome
from accelsweep.schedulers.slurm_site import draft

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("accounting")]


def test_sacct_tells_of_a_job_of_this_folder_and_of_no_other_or_why_it_tells_nothing(
    home: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = home.slurm("sbatch", "--parsable", f"--chdir={home.path}", "--output=/dev/null", "--wrap=sleep 5").strip()
    begun = f"sacct has no end time for job {job} yet ("
    home.wait_for(
        lambda: str(accounts(home.folder, [job])[job].reason).startswith(begun), "the job in the accounts", 60
    )
    home.wait_for(lambda: accounts(home.folder, [job])[job].reason is None, "the job's end in the accounts", 60)
    found = accounts(home.folder, [job, "99999999"])
    assert (found[job].state, found[job].nodes, found[job].energy_reason) == ("COMPLETED", "cpu1", NO_ENERGY)
    assert 0 <= found[job].queue_seconds < 60
    assert 1 <= found[job].elapsed_seconds < 60
    unknown = "sacct has no record of job {} from this folder (perhaps purged)"
    assert found["99999999"].reason == unknown.format("99999999")
    elsewhere = SweepFolder(tmp_path_factory.mktemp("elsewhere"), "tiny")
    assert accounts(elsewhere, [job])[job].reason == unknown.format(job)
    disabled = tmp_path_factory.mktemp("etc") / "slurm.conf"
    told = Path("/etc/slurm/slurm.conf").read_text()
    disabled.write_text(re.sub(r"^AccountingStorage.*\n", "", told, flags=re.MULTILINE))
    monkeypatch.setitem(os.environ, "SLURM_CONF", str(disabled))
    assert accounts(home.folder, [job])[job].reason == "sacct failed: Slurm accounting storage is disabled"


def test_the_draft_of_a_site_has_its_users_accounts_and_what_they_may_ask_for() -> None:
    text = draft("drafted")
    site = Site.model_validate(yaml.safe_load(text))
    assert (site.slurm.account, site.slurm.qos) == ("test", None)
    assert {kind.slurm.gpu_model for kind in site.kinds} == {"h100", "a100", None}
    lines = [line.strip() for line in text.splitlines()]
    assert "# account test: qos normal, one" in lines
    assert {line.split()[2] for line in lines if line.startswith("# account ")} == {"few:", "root:", "short:", "test:"}


@pytest.mark.parametrize(
    ("command", "override", "words", "key"),
    [
        ("run", "site.slurm.account=nobodys", "Invalid account", "site.slurm.account=nobodys"),
        ("detach", "site.slurm.account=few", "and no other job", "site.slurm.account=few"),
        # Other words of Slurm come the same way.
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in [
                ("run", "site.slurm.qos=gold", "Invalid qos specification", "site.slurm.qos=gold"),
                (
                    "run",
                    "site.slurm.partition=nonesuch",
                    "Invalid partition name specified",
                    "site.slurm.partition=nonesuch",
                ),
                (
                    "run",
                    "site.slurm.gpu_model=b300",
                    "Requested node configuration is not available",
                    "site.slurm.gpu_model=b300",
                ),
                ("fleet", "site.slurm.account=nobodys", "Invalid account", "site.slurm.account=nobodys"),
                (
                    "detach",
                    "site.slurm.driver.partition=nonesuch",
                    "Invalid partition name",
                    "site.slurm.driver.partition=nonesuch",
                ),
                (
                    "detach",
                    "site.slurm.account=short",
                    "AssocMaxWallDurationPerJobLimit",
                    "site.slurm.driver.minutes=30",
                ),
            ]
        ),
    ],
)
def test_what_slurm_refuses_ends_with_exit_2_its_words_and_the_sites_key_before_anything_is_submitted(
    home: Any, command: str, override: str, words: str, key: str, last_line: Any
) -> None:
    name, more = ("run", ["--detach", "site.slurm.driver.minutes=30"]) if command == "detach" else (command, [])
    known = jobs(home)
    ended = home.accelsweep(name, "experiment=tiny", "site=box", "--profile", "quick", override, *more)
    assert ended.returncode == 2, ended.stderr
    last = ended.stderr.splitlines()[-1]
    last_line(f"{command} with {override}", last)
    assert words in last
    assert key in last
    assert "same command" not in ended.stdout + ended.stderr
    home.wait_for(lambda: not home.left(), "the end of the driver's job, which was cancelled", 60)
    if "was cancelled" not in last:
        assert jobs(home) <= known, "Slurm forgets jobs that have ended, and has got no new one"


def jobs(home: Any) -> set[str]:
    return set(home.slurm("squeue", "--noheader", "--states=all", "--format=%i").split())


@pytest.mark.long  # driver/test_job_queue.py has such reasons by the dozen; only here Slurm gives them
@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("site.slurm.account=short",), "AssocMaxWallDurationPerJobLimit"),
        (("site.slurm.qos=one", "site.slurm.fake_gpus=2"), "QOSMaxGRESPerUser"),
    ],
)
def test_a_job_that_can_never_start_is_left_out_at_once_and_is_submitted_once(
    home: Any, overrides: tuple[str, ...], reason: str, last_line: Any
) -> None:
    """Slurm's word for a job that alone exceeds what its user may hold is the same as for one that need only wait."""
    output = home.finished(home.start(*overrides), code=1)
    last = output.splitlines()[-1]
    last_line(f"run with {overrides[0]}, whose job can never start", last)
    assert f"can never start, Slurm reports {reason}: change site.slurm." in last
    assert "fix the cause, then run the same command" in output
    assert "same command resumes" not in output
    assert len(home.submitted()) == 1
    assert f"Slurm reports {reason}" in (home.folder.report / "index.html").read_text()
    assert "[2/2]" in home.run()
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
