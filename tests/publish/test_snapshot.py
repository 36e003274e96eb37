"""What a sweep's folder is taken to hold: finished runs, living holds, and damage that is named."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.tracking.sweep_snapshot import take


def hold(sweep: SweepFolder, run: str, **changes: Any) -> None:
    """Claim the block of `run` for this process, or as the changes say."""
    block = next(block.name for block in Manifest.read(sweep.manifest).blocks if run in block.runs)
    values = {
        "block": block,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": psutil.Process().create_time(),
        "since": "2026-01-01T00:00:00+00:00",
        "run": run,
        "run_since": "2026-01-01T00:00:00+00:00",
    }
    Hold(**(values | changes)).write(sweep.hold(block))


@pytest.fixture
def open_run(sweep: SweepFolder) -> str:
    """The run of the example that has no record."""
    return next(run for run in Manifest.read(sweep.manifest).wanted_runs() if not sweep.record(run).exists())


def test_a_claimed_run_without_a_record_is_running(
    sweep: SweepFolder, open_run: str, count_steps: Callable[[SweepFolder, str, int], None]
) -> None:
    hold(sweep, open_run)
    snapshot = take(sweep)
    assert {run: item.step for run, item in snapshot.running.items()} == {open_run: None}
    assert snapshot.live
    assert len(snapshot.finished) == 23
    count_steps(sweep, open_run, 5)
    snapshot = take(sweep)
    assert {run: item.step for run, item in snapshot.running.items()} == {open_run: 5}


def test_the_steps_of_an_attempt_that_ended_are_not_those_of_the_next_one(
    sweep: SweepFolder, open_run: str, count_steps: Callable[[SweepFolder, str, int], None]
) -> None:
    hold(sweep, open_run)
    count_steps(sweep, open_run, 5)
    place = RunFolder(sweep.run(open_run), open_run)
    place.unmark(place.latest())
    assert take(sweep).running[open_run].step is None


def test_a_hold_on_a_run_that_has_its_record_says_only_that_the_sweep_goes_on(sweep: SweepFolder) -> None:
    hold(sweep, next(iter(take(sweep).finished)))
    assert (take(sweep).running, take(sweep).live) == ({}, True)


def test_the_hold_of_a_dead_process_counts_for_nothing(sweep: SweepFolder, open_run: str) -> None:
    with subprocess.Popen(["true"]) as process:
        started = psutil.Process(process.pid).create_time()
        process.wait()
    hold(sweep, open_run, pid=process.pid, process_started=started)
    assert (take(sweep).running, take(sweep).live) == ({}, False)


def test_another_process_that_got_the_same_id_is_not_the_claimant(sweep: SweepFolder, open_run: str) -> None:
    hold(sweep, open_run, process_started=psutil.Process().create_time() - 60)
    assert not take(sweep).live


def test_a_hold_from_another_host_lives_while_it_is_kept_up_to_date(sweep: SweepFolder, open_run: str) -> None:
    hold(sweep, open_run, host="elsewhere", pid=1)
    assert open_run in take(sweep).running
    old = time.time() - 600
    for path in (sweep.root / "blocks").glob("*.claim.json"):
        os.utime(path, (old, old))
    assert not take(sweep).live


def test_records_that_have_not_changed_are_not_read_again(sweep: SweepFolder) -> None:
    first = take(sweep)
    second = take(sweep, first)
    assert all(second.finished[run] is item for run, item in first.finished.items())


def test_damaged_files_are_named_and_left_out(sweep: SweepFolder) -> None:
    run = next(iter(take(sweep).finished))
    sweep.record(run).write_text("{}", "utf-8")
    sweep.findings.write_text("{", "utf-8")
    snapshot = take(sweep)
    assert run not in snapshot.finished
    assert snapshot.findings is None
    assert [line.partition(":")[0] for line in snapshot.damaged] == [str(sweep.findings), str(sweep.record(run))]


def test_the_record_of_another_run_is_named_and_left_out(sweep: SweepFolder) -> None:
    run, other, *_ = take(sweep).finished
    sweep.record(run).write_bytes(sweep.record(other).read_bytes())
    snapshot = take(sweep)
    assert run not in snapshot.finished
    assert snapshot.damaged == (f"{sweep.record(run)}: it is the record of another run, {other!r}",)
