"""What a snapshot of a sweep's folder holds: finished runs, live holds, damaged files and provenance."""

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
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_files import RunFolder
from accelsweep.tracking.snapshot import merge_tags, take_snapshot

CountSteps = Callable[[SweepFolder, str, int], None]


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
    LockOwner(**(values | changes)).write(sweep.lock(block))


@pytest.fixture
def open_run(sweep: SweepFolder) -> str:
    """The run of the example without a record."""
    return next(run for run in Manifest.read(sweep.manifest).wanted_runs() if not sweep.record(run).exists())


def test_a_held_run_without_a_record_is_running(sweep: SweepFolder, open_run: str, count_steps: CountSteps) -> None:
    hold(sweep, open_run)
    snapshot = take_snapshot(sweep)
    assert {run: item.step for run, item in snapshot.running.items()} == {open_run: None}
    assert snapshot.live
    assert len(snapshot.finished) == 23
    count_steps(sweep, open_run, 5)
    assert {run: item.step for run, item in take_snapshot(sweep).running.items()} == {open_run: 5}


def test_steps_of_an_ended_attempt_do_not_count_for_the_next_one(
    sweep: SweepFolder, open_run: str, count_steps: CountSteps
) -> None:
    hold(sweep, open_run)
    count_steps(sweep, open_run, 5)
    run_folder = RunFolder(sweep.run(open_run), open_run)
    run_folder.close(run_folder.latest())
    assert take_snapshot(sweep).running[open_run].step is None


def test_snapshots_that_differ_in_step_counts_only_are_equal_without_them(
    sweep: SweepFolder, open_run: str, count_steps: CountSteps
) -> None:
    hold(sweep, open_run)
    before = take_snapshot(sweep)
    count_steps(sweep, open_run, 5)
    after = take_snapshot(sweep, before)
    assert before != after
    assert before.without_steps() == after.without_steps()


def test_a_held_run_with_a_record_is_finished_and_the_sweep_is_live(sweep: SweepFolder) -> None:
    hold(sweep, next(iter(take_snapshot(sweep).finished)))
    snapshot = take_snapshot(sweep)
    assert (snapshot.running, snapshot.live) == ({}, True)


def test_the_hold_of_a_dead_process_is_ignored(sweep: SweepFolder, open_run: str) -> None:
    with subprocess.Popen(["true"]) as process:
        started = psutil.Process(process.pid).create_time()
        process.wait()
    hold(sweep, open_run, pid=process.pid, process_started=started)
    snapshot = take_snapshot(sweep)
    assert (snapshot.running, snapshot.live) == ({}, False)


def test_another_process_with_a_reused_pid_does_not_hold_the_run(sweep: SweepFolder, open_run: str) -> None:
    hold(sweep, open_run, process_started=psutil.Process().create_time() - 60)
    assert not take_snapshot(sweep).live


def test_a_hold_of_another_host_expires_without_heartbeats(sweep: SweepFolder, open_run: str) -> None:
    hold(sweep, open_run, host="elsewhere", pid=1)
    assert open_run in take_snapshot(sweep).running
    old = time.time() - 600
    for path in (sweep.root / "blocks").glob("*.lock.json"):
        os.utime(path, (old, old))
    assert not take_snapshot(sweep).live


def test_unchanged_records_are_not_read_again(sweep: SweepFolder) -> None:
    first = take_snapshot(sweep)
    second = take_snapshot(sweep, first)
    assert all(second.finished[run] is item for run, item in first.finished.items())


def test_damaged_files_are_reported_and_left_out(sweep: SweepFolder) -> None:
    run = next(iter(take_snapshot(sweep).finished))
    sweep.record(run).write_text("{}", "utf-8")
    sweep.findings.write_text("{", "utf-8")
    snapshot = take_snapshot(sweep)
    assert run not in snapshot.finished
    assert snapshot.findings is None
    assert [line.partition(":")[0] for line in snapshot.damaged] == [str(sweep.findings), str(sweep.record(run))]


def test_the_record_of_another_run_is_reported_and_left_out(sweep: SweepFolder) -> None:
    run, other, *_ = take_snapshot(sweep).finished
    sweep.record(run).write_bytes(sweep.record(other).read_bytes())
    snapshot = take_snapshot(sweep)
    assert run not in snapshot.finished
    assert snapshot.damaged == (f"{sweep.record(run)}: it is the record of another run, {other!r}",)


def test_merged_tags_have_each_distinct_value_once() -> None:
    first = {"torch": "2.13.0", "mlflow.source.git.dirty": "false"}
    second = {"torch": "2.13.0", "mlflow.source.git.dirty": "true", "mlflow.source.git.commit": "abc"}
    assert merge_tags([first, second, first]) == {
        "torch": "2.13.0",
        "mlflow.source.git.dirty": "false, true",
        "mlflow.source.git.commit": "abc",
    }
    assert merge_tags([]) == {}
