"""What sacct says of jobs, from listings as Slurm 22.05 prints them; tests/slurm/test_accounts.py asks the real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.features.accounting import sacct
from accelsweep.features.accounting.sacct import (
    NO_ENERGY,
    STEPS_ONLY,
    Accounting,
    JobAccount,
    account,
    accounting_file,
    note_accounts,
    read_starts,
)
from accelsweep.records.layout import SweepFolder

ONE = """\
7|COMPLETED|gpu|1|gpu1|2026-11-23T10:00:00|2026-11-23T10:01:30|2026-11-23T10:03:30|120|{job}|/home/me/a|b
7.batch|COMPLETED||1|gpu1|2026-11-23T10:01:30|2026-11-23T10:01:30|2026-11-23T10:03:30|120|{batch}|
7.0|COMPLETED||1|gpu1|2026-11-23T10:01:32|2026-11-23T10:01:32|2026-11-23T10:03:29|117|{step}|
"""
WIDE = """\
8|COMPLETED|gpu|2|gpu[1-2]|2026-11-23T10:00:00|2026-11-23T10:00:10|2026-11-23T10:01:10|60|900|/home
8.batch|COMPLETED||1|gpu1|2026-11-23T10:00:10|2026-11-23T10:00:10|2026-11-23T10:01:10|60|300|
{extern}8.0|COMPLETED||2|gpu[1-2]|2026-11-23T10:00:20|2026-11-23T10:00:20|2026-11-23T10:01:00|40|400|
"""
EXTERN = "8.extern|COMPLETED||2|gpu[1-2]|2026-11-23T10:00:10|2026-11-23T10:00:10|2026-11-23T10:01:10|60|620|\n"
AGAIN = """\
9|NODE_FAIL|gpu|1|gpu1|2026-11-23T10:00:00|2026-11-23T10:00:10|2026-11-23T10:00:40|30||/home
9|CANCELLED by 0|gpu|1|None assigned|2026-11-23T10:00:40|Unknown|2026-11-23T10:00:50|0||/home
9|COMPLETED|gpu|1|gpu2|2026-11-23T10:01:00|2026-11-23T10:03:00|2026-11-23T10:04:00|60||/home
"""
WAITS = "10|PENDING|gpu|1|None assigned|2026-11-23T10:00:00|Unknown|Unknown|0||/home\n"


def told(listing: str) -> JobAccount:
    """Return the account of the one job in a listing."""
    starts = [start for start, _ in read_starts(listing)]
    return account(starts[0].number, starts)


def test_a_job_has_its_wait_its_length_and_the_energy_of_its_one_node_once() -> None:
    """Slurm's own sum counts what `batch` and the step inside it saw twice."""
    text = ONE.format(job="1180", batch="600", step="580")
    ((start, home),) = read_starts(text)
    assert home == "/home/me/a|b"
    assert start.steps == {"batch": 600.0, "0": 580.0}
    found = told(text)
    assert (found.queue_seconds, found.elapsed_seconds, found.energy_joules) == (90.0, 120.0, 600.0)
    assert (found.state, found.partition, found.nodes, found.starts) == ("COMPLETED", "gpu", "gpu1", 1)
    assert (found.submitted_at, found.ended_at) == ("2026-11-23T10:00:00+00:00", "2026-11-23T10:03:30+00:00")


@pytest.mark.parametrize("nothing", ["", "0", "18446744073709551614", "18446744073709551000"])
def test_a_cluster_that_counts_no_energy_has_a_reason_and_no_0(nothing: str) -> None:
    found = told(ONE.format(job=nothing, batch=nothing, step=nothing))
    assert (found.energy_joules, found.energy_reason) == (None, NO_ENERGY)
    assert found.queue_seconds == 90.0


def test_the_energy_of_several_nodes_is_known_where_a_step_covers_them_all() -> None:
    assert told(WIDE.format(extern=EXTERN)).energy_joules == 620.0
    parts = told(WIDE.format(extern=""))
    assert (parts.energy_joules, parts.energy_reason) == (None, STEPS_ONLY)


def test_a_job_that_was_queued_again_waited_and_ran_for_all_its_starts_together() -> None:
    found = told(AGAIN)
    assert (found.starts, found.queue_seconds, found.elapsed_seconds) == (2, 10.0 + 120.0, 30.0 + 60.0)
    assert (found.state, found.nodes) == ("COMPLETED", "gpu2")


def test_a_job_that_has_not_ended_or_that_nobody_knows_has_a_reason() -> None:
    waiting = told(WAITS)
    assert waiting.reason == "sacct has no end time for job 10 yet (PENDING); accelsweep report queries it again"
    assert account("11", []).reason == "sacct has no record of job 11 from this folder (perhaps purged)"


@pytest.fixture
def submitted(example_sweep: SweepFolder) -> SweepFolder:
    """The example sweep as if Slurm had run its two measured jobs 21 and 22."""
    from queued_sweep import on_slurm

    return on_slurm(example_sweep)


def test_without_sacct_each_job_gets_the_reason_and_known_accounts_are_kept(
    submitted: SweepFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = JobAccount(number="21", queue_seconds=5.0, elapsed_seconds=60.0, energy_reason=NO_ENERGY)
    Accounting(jobs={"21": known}).write(accounting_file(submitted))
    monkeypatch.setenv("PATH", str(tmp_path))
    note_accounts(submitted)
    jobs = Accounting.read(accounting_file(submitted)).jobs
    assert jobs["21"] == known
    assert {job.reason for number, job in jobs.items() if number != "21"} == {
        "there is no sacct here: run this on a login node of the cluster"
    }
    before = accounting_file(submitted).stat().st_mtime_ns
    note_accounts(submitted)
    assert accounting_file(submitted).stat().st_mtime_ns == before, "nothing new is nothing to write"


@pytest.mark.parametrize("blocks_ended", [True, False])
def test_only_once_all_blocks_have_ended_is_the_end_of_a_job_awaited(
    submitted: SweepFolder, monkeypatch: pytest.MonkeyPatch, *, blocks_ended: bool
) -> None:
    """Slurm's controller tells its database a little later than the jobs end."""
    job = "{}|{}|cpu|1|n1|2026-11-23T10:00:00|2026-11-23T10:00:05|{}|60||/home\n"
    running = "".join(job.format(number, "RUNNING", "Unknown") for number in (21, 22))
    ended = running.replace("RUNNING", "COMPLETED").replace("Unknown", "2026-11-23T10:01:05")
    listings = iter([running, ended])
    monkeypatch.setattr(sacct, "_starts", lambda *_: [start for start, _ in read_starts(next(listings))])
    note_accounts(submitted, blocks_ended=blocks_ended)
    jobs = Accounting.read(accounting_file(submitted)).jobs
    expected = "COMPLETED" if blocks_ended else None
    assert {number: jobs[number].state for number in ("21", "22")} == {"21": expected, "22": expected}


def test_a_local_sweep_does_not_ask_sacct(example_sweep: SweepFolder) -> None:
    note_accounts(example_sweep)
    assert not accounting_file(example_sweep).exists()
