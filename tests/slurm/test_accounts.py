"""A cluster with accounts: what it refuses and why, in its own words, and what it says of jobs that have ended."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.sites.site import Site
from accelsweep.drive.slurm.accounting import NO_ENERGY, accounts
from accelsweep.engines.slurm.draft import draft
from accelsweep.state.folders import SweepFolder

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("accounting")]


def test_sacct_tells_of_a_job_of_this_folder_and_of_no_other_or_why_it_tells_nothing(
    home: Any, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = home.slurm("sbatch", "--parsable", f"--chdir={home.path}", "--output=/dev/null", "--wrap=sleep 5").strip()
    begun = f"sacct does not know the end of job {job} yet ("
    home.wait_for(
        lambda: str(accounts(home.folder, [job])[job].reason).startswith(begun), "the job in the accounts", 60
    )
    home.wait_for(lambda: accounts(home.folder, [job])[job].settled, "the job's end in the accounts", 60)
    found = accounts(home.folder, [job, "99999999"])
    assert (found[job].state, found[job].nodes, found[job].energy_reason) == ("COMPLETED", "cpu1", NO_ENERGY)
    assert 0 <= found[job].queue_seconds < 60
    assert 1 <= found[job].elapsed_seconds < 60
    unknown = "sacct knows no job {} of this folder (any more)"
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


@pytest.mark.long  # each takes a head's length; drive/test_failures.py reads such words without Slurm
@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "site.slurm.account=nobodys",
            ("account nobodys appears to be invalid. Available accounts: ", "few", "root", "short", "test"),
        ),
        ("+site.slurm.qos=gold", ("Invalid qos specification",)),
    ],
)
def test_an_account_or_a_qos_that_one_has_not_is_told_in_slurms_words(
    home: Any, override: str, words: tuple[str, ...]
) -> None:
    """The plugin lists the accounts in any order."""
    output = home.finished(home.start(override), code=1)
    last = output.splitlines()[-1]
    assert last.startswith("not_run: 2 runs: Slurm refused its job (")
    for told in (last, home.say("status", "tiny"), (home.folder.report / "index.html").read_text()):
        assert [word for word in words if word not in told] == []


@pytest.mark.long  # drive/test_queue.py waits by a clock of its own; only here Slurm gives the reasons
@pytest.mark.parametrize(
    ("overrides", "reason", "never"),
    [
        (("site.slurm.account=short",), "AssocMaxWallDurationPerJobLimit", True),
        (("+site.slurm.qos=one", "site.slurm.fake_gpus=2"), "QOSMaxGRESPerUser", False),
    ],
)
def test_a_job_that_a_limit_keeps_waiting_for_ever_is_named_and_left_out(
    home: Any, overrides: tuple[str, ...], reason: str, never: bool
) -> None:
    """Slurm's word for a job that alone exceeds what its user may hold is the same as for one that need only wait."""
    head = home.start(*overrides, "limits.queue_minutes=0.5")
    home.wait_for(home.submitted, "the job")
    (job,) = home.submitted()
    home.wait_for(lambda: f"Reason={reason}" in home.told(job), "Slurm's reason", 60)
    assert f"job {job} PENDING ({reason}), block b" in home.say("status", "tiny")
    output = home.finished(head, code=1)
    assert f"jobs wait in Slurm's queue: 1 x {reason}" in output
    assert (f"no waiting ends {reason}" in output) is never
    words = f"more than limits.queue_minutes (0.5) in Slurm's queue, which says: {reason}"
    assert words in output.splitlines()[-1]
    assert f"queue, which says: {reason}" in (home.folder.report / "index.html").read_text()
    assert "[2/2]" in home.run()
    assert {record.outcome for record in home.records().values()} == {Outcome.measured}
