"""A block from start to end, with real processes: what is measured, skipped, retried, stopped, taken over."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from polling import PATIENCE_SECONDS, until
from tiny_executor import TinyBlock, ended

from accelsweep.config.site import Site
from accelsweep.executor.result_reuse import audit
from accelsweep.files import sha256_file
from accelsweep.records.file_lock import HeldLock, acquire
from accelsweep.records.plan import Done, LockOwner, Manifest
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.worker.run_spec import RunSpec


def test_a_block_over_its_time_limit_starts_no_more_runs_and_the_next_executor_continues(tiny_block: TinyBlock) -> None:
    tiny_block.plan("slow:1", "slow:2", "slow:3", limits={"block_seconds": 0.01})
    for finished in range(1, 4):
        code, output = tiny_block.run()
        done = tiny_block.done_file.exists()
        assert len(list(tiny_block.folder.root.glob("runs/*/record.json"))) == finished
        assert (code, done) == ((0, True) if finished == 3 else (1, False)), output
        assert ("limits.block_seconds" in output) == (finished < 3)


def test_every_wanted_run_gets_a_record_and_the_done_file_lists_their_digests(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured", "exit_three", repeats=2)
    code, output = tiny_block.run()
    assert code == 0, output
    done = Done.read(tiny_block.done_file)
    assert done.records == {run: sha256_file(tiny_block.folder.record(run)) for run in tiny_block.runs()}
    outcomes = [tiny_block.record(number).outcome for number in range(4)]
    assert outcomes == [Outcome.measured, Outcome.crashed] * 2
    assert not tiny_block.lock_file.exists()


def test_a_run_whose_promised_devices_are_missing_is_retried_by_the_next_command(tiny_block: TinyBlock) -> None:
    """A GPU that a node has lost says nothing about the setting, so the outcome must not be final."""
    tiny_block.plan_settings({"act": "measured", "accelerator": "cuda", "devices": 64})
    for attempt in (1, 2):
        tiny_block.run()
        record = tiny_block.record(0)
        assert (record.outcome, record.attempt) == (Outcome.crashed, attempt)
    assert "fewer than its site's inventory lists" in (record.reason or "")


def test_a_record_has_the_position_of_its_run_and_the_results_of_rank_0(tiny_block: TinyBlock) -> None:
    tiny_block.plan("silent", "measured")
    tiny_block.run()
    record = tiny_block.record(1)
    assert (record.planned_position, record.position) == (1, 2)  # the first run was attempted twice
    assert (record.attempt, record.repeat, record.block) == (1, 0, tiny_block.name)
    assert record.metrics["samples_per_second"].value == 100.0
    assert record.started_at < record.finished_at
    assert record.fingerprint.software.keys() == {"torch", "lightning"}
    assert record.git["commit"] is None
    steps = parquet.read_table(tiny_block.folder.run(tiny_block.runs()[1]) / "steps.parquet").to_pydict()
    assert (steps["rank"], steps["step"], steps["phase"]) == ([0, 0], [0, 1], ["warmup", "window"])
    assert (steps["step_seconds"], steps["samples"]) == ([0.5, 0.25], [8, 8])
    assert math.isnan(steps["train_loss"][0])
    assert steps["train_loss"][1] is None


def test_each_run_records_the_sources_at_its_start_and_a_doubt_if_they_changed_during_it(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.plan("measured:1", "edit_source", "measured:2", config={"model": {"_target_": "mine.Net"}})
    (tiny_block.home / "mine.py").write_text("# as planned\n")
    tiny_block.run()
    first, editing, last = (tiny_block.record(number) for number in range(3))
    assert first.fingerprint.sources == editing.fingerprint.sources != last.fingerprint.sources
    assert [[doubt.code for doubt in record.doubts] for record in (first, editing, last)] == [
        [], ["sources_changed"], []
    ]  # fmt: skip
    assert "mine changed during the run" in editing.doubts[0].message
    output = tiny_block.run()[1]
    assert "3 runs wanted, 2 to measure" in output, "those that ran before or during the edit"


def test_on_a_cluster_a_rank_gets_the_threads_that_its_setting_asks_for(tiny_block: TinyBlock) -> None:
    """The block may have been given more cores for another setting; on one machine a rank finds its share itself."""
    for site, threads in ((Site(name="cluster", scheduler="slurm"), 1), (Site(name="local"), None)):
        tiny_block.plan_settings({"act": "raise_error", "threads": None}, name=site.name, site=site)
        code, output = tiny_block.run()
        assert code == 0, output
        assert RunSpec.read(tiny_block.attempt() / "run-spec.json").threads == threads


def test_the_attempt_of_a_measured_run_leaves_what_its_record_lacks_and_that_of_a_failed_run_what_it_was_given(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.plan("measured", "raise_error", devices=2)
    tiny_block.run()
    measured, failed = sorted((0, 1), key=lambda run: tiny_block.record(run).outcome is not Outcome.measured)
    assert [path.name for path in tiny_block.attempt(measured).iterdir()] == ["rank-1.json"]
    assert (tiny_block.attempt(failed) / "run-spec.json").is_file()


def test_a_finished_block_is_skipped_without_touching_a_record(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured:1", "measured:2")
    tiny_block.run()
    before = [tiny_block.folder.record(run).stat().st_mtime_ns for run in tiny_block.runs()]
    tiny_block.done_file.unlink()
    code, output = tiny_block.run()
    assert code == 0
    assert "2 runs wanted, 0 to measure" in output
    assert [tiny_block.folder.record(run).stat().st_mtime_ns for run in tiny_block.runs()] == before
    assert tiny_block.done_file.exists()


def test_a_crashed_run_is_not_final_and_is_retried_by_the_next_command(tiny_block: TinyBlock) -> None:
    tiny_block.plan("exit_three", limits={"retries": 0})
    tiny_block.run()
    assert tiny_block.record().attempt == 1
    tiny_block.run()
    assert tiny_block.record().attempt == 2
    assert Record.read(tiny_block.attempt(attempt=1) / "record.json").attempt == 1


def test_a_run_measured_with_other_software_is_measured_again_and_both_records_are_kept(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured")
    tiny_block.run()
    old = tiny_block.record()
    software = {**old.fingerprint.software, "torch": "1.0.0"}
    changed = old.model_copy(update={"fingerprint": replace(old.fingerprint, software=software)})
    changed.write(tiny_block.folder.record(old.run))
    _, output = tiny_block.run()
    assert "software torch: 1.0.0 then" in output
    assert tiny_block.record().attempt == 2
    assert Record.read(tiny_block.attempt(attempt=1) / "record.json") == changed
    assert (tiny_block.attempt(attempt=1) / "steps.parquet").exists()


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace(b"measured", b"measurad")]
)
def test_a_damaged_record_is_set_aside_reported_and_measured_again(tiny_block: TinyBlock, damage) -> None:  # type: ignore[no-untyped-def]
    tiny_block.plan("measured")
    tiny_block.run()
    path = tiny_block.record_file()
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    code, output = tiny_block.run()
    assert code == 0
    assert str(path) in output
    assert path.with_name("record.json.damaged-1").read_bytes() == damaged
    assert tiny_block.record().attempt == 2


def test_a_record_copied_from_another_run_is_rejected(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured:1", "measured:2")
    tiny_block.run()
    first, second = tiny_block.runs()
    tiny_block.folder.record(second).write_bytes(tiny_block.folder.record(first).read_bytes())
    _, output = tiny_block.run()
    assert "record of another run" in output
    assert tiny_block.record(1).run == second


def test_a_deleted_run_folder_is_measured_again(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured:1", "measured:2")
    tiny_block.run()
    shutil.rmtree(tiny_block.folder.run(tiny_block.runs()[0]))
    _, output = tiny_block.run()
    assert "2 runs wanted, 1 to measure" in output
    assert tiny_block.record(0).attempt == 1


def test_a_run_that_dies_by_a_signal_is_retried_and_its_attempts_are_kept(tiny_block: TinyBlock) -> None:
    tiny_block.plan("segfault", limits={"retries": 2})
    tiny_block.run()
    assert tiny_block.record().attempt == 3
    assert {path.name for path in tiny_block.attempt().parent.iterdir()} == {"1", "2", "3"}


def test_running_out_of_memory_is_never_retried(tiny_block: TinyBlock) -> None:
    tiny_block.plan("memory_on_rank_1", devices=2, limits={"retries": 5})
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.out_of_memory
    assert tiny_block.record().attempt == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_executor_keeps_finished_runs_and_ends_the_running_one(
    tiny_block: TinyBlock, number: signal.Signals, code: int
) -> None:
    tiny_block.plan("measured", "hang")
    process = tiny_block.start()
    until((tiny_block.attempt(run=1) / "run-spec.json").exists)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, output
    assert tiny_block.record(0).outcome is Outcome.measured
    assert not tiny_block.record_file(1).exists()
    assert not tiny_block.done_file.exists()
    assert not tiny_block.lock_file.exists()
    assert not (tiny_block.attempt(run=1) / "started.json").exists()


def test_the_stop_file_ends_the_block_before_the_next_run(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured")
    tiny_block.folder.stop.touch()
    code, output = tiny_block.run()
    assert code == 1
    assert "sweeps/tiny/stop exists" in output
    assert not tiny_block.done_file.exists()


def test_a_run_that_killed_its_executor_twice_is_crashed_and_the_others_are_measured(tiny_block: TinyBlock) -> None:
    tiny_block.plan("kill_executor", "measured")
    assert tiny_block.run()[0] == -signal.SIGKILL
    assert tiny_block.run()[0] == -signal.SIGKILL
    assert tiny_block.record(1).outcome is Outcome.measured, "it was held up by the run that kills executors"
    code, output = tiny_block.run()
    assert code == 0, output
    assert tiny_block.record(0).outcome is Outcome.crashed
    assert "its executor died 2 times while it ran (attempts 1, 2)" in str(tiny_block.record(0).reason)
    assert tiny_block.record(1).outcome is Outcome.measured


def test_new_runs_come_before_failed_ones_and_those_that_killed_an_executor_come_last(tiny_block: TinyBlock) -> None:
    tiny_block.plan("kill_executor:1", "exit_three", "kill_executor:2", "measured", limits={"retries": 0})
    outputs = [tiny_block.run()[1] for _ in range(4)]
    first, failed, second, measured = tiny_block.runs()
    turns = [[run for run in tiny_block.runs() if f"{run}: attempt" in output] for output in outputs]
    assert turns == [[first], [failed, second], [first, failed, measured], [failed, second]]
    started = [line.split()[1].rstrip(":") for line in outputs[2].splitlines() if ": attempt" in line]
    assert started == [measured, failed, first]


def test_a_failed_run_is_retried_by_the_next_command_but_not_by_the_same_one(tiny_block: TinyBlock) -> None:
    tiny_block.plan("exit_three", "measured", limits={"retries": 0})
    driver = acquire(tiny_block.folder.driver_file("lock"), "driver")
    assert isinstance(driver, HeldLock)
    tiny_block.run()
    assert audit(tiny_block.folder).reopened == ()
    assert "2 runs wanted, 0 to measure" in tiny_block.run()[1]
    driver.release()
    driver = acquire(tiny_block.folder.driver_file("lock"), "driver")
    assert isinstance(driver, HeldLock)
    assert audit(tiny_block.folder).reopened == (tiny_block.name,)
    assert "2 runs wanted, 1 to measure" in tiny_block.run()[1]
    driver.release()
    assert tiny_block.record().attempt == 2


def test_a_clean_stop_does_not_count_as_killing_the_executor(tiny_block: TinyBlock) -> None:
    tiny_block.plan("hang", limits={"run_seconds": 3.0, "retries": 0, "stop_grace_seconds": 2 * PATIENCE_SECONDS})
    for attempt in (1, 2, 3):
        process = tiny_block.start()
        until((tiny_block.attempt(attempt=attempt) / "run-spec.json").exists)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)  # less than the grace period: the signal reached the ranks
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.timed_out


def test_a_second_executor_waits_for_the_first_and_then_has_nothing_to_do(tiny_block: TinyBlock) -> None:
    tiny_block.plan("lasting")
    first = tiny_block.start()
    until(tiny_block.lock_file.exists)
    code, output = tiny_block.run()
    first.communicate(timeout=PATIENCE_SECONDS)
    assert f"is being run by process {first.pid}" in output
    assert (code, tiny_block.record().attempt) == (0, 1)
    assert "1 runs wanted, 0 to measure" in output


def test_cancel_old_ends_the_first_executor_and_takes_over_its_block(tiny_block: TinyBlock) -> None:
    tiny_block.plan("hang_at_first", limits={"retries": 0})
    first = tiny_block.start()
    until((tiny_block.attempt() / "run-spec.json").exists)
    code, output = tiny_block.run("--cancel-old")
    first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 143
    assert f"sending SIGTERM to process {first.pid}" in output
    assert (code, tiny_block.record().attempt) == (0, 2)


def test_the_lock_of_a_dead_executor_is_taken_over_at_once(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured")
    path = tiny_block.lock_file
    hold = LockOwner(
        block=tiny_block.name, host=os.uname().nodename, pid=os.getpid(), process_started=1.0, since="long ago"
    )
    hold.write(path)
    code, output = tiny_block.run()
    assert code == 0
    assert "waiting" not in output


def test_too_little_disk_space_ends_the_block_before_anything_is_measured(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured", limits={"free_disk_bytes": 10**18})
    code, output = tiny_block.run()
    assert code == 1
    assert "the disk of sweeps/tiny has" in output
    assert "limits.free_disk_bytes" in output
    assert not tiny_block.folder.run(tiny_block.runs()[0]).exists()


def test_a_damaged_block_or_manifest_is_reported_and_nothing_is_run(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured")
    for path in (tiny_block.block_file, tiny_block.folder.manifest):
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        code, output = tiny_block.run()
        assert code == 1
        assert str(path) in output
        assert "accelsweep run" in output
        path.write_bytes(whole)
    assert not tiny_block.folder.run(tiny_block.runs()[0]).exists()


def test_a_path_that_is_no_block_is_wrong_input(tiny_block: TinyBlock, tmp_path: Path) -> None:
    tiny_block.plan("measured")
    tiny_block.block_file = tmp_path / "elsewhere.json"
    code, output = tiny_block.run()
    assert code == 2
    assert "sweeps/NAME/blocks/BLOCK.json" in output


def test_runs_that_the_plan_no_longer_wants_are_not_measured(tiny_block: TinyBlock) -> None:
    tiny_block.plan("measured:1", "measured:2")
    manifest = Manifest.read(tiny_block.folder.manifest)
    first = tiny_block.runs()[0]
    planned = manifest.blocks[0].model_copy(update={"runs": (first,)})
    manifest.model_copy(update={"blocks": (planned,)}).write(tiny_block.folder.manifest)
    tiny_block.run()
    assert Done.read(tiny_block.done_file).records.keys() == {first}
    assert [path.name for path in (tiny_block.folder.root / "runs").iterdir()] == [first]


# The variable that other tests set is empty here. Other tests keep the machine busy, so nothing waits for it.
NOT_QUIET = {"ACCELSWEEP_ASSUME_QUIET": ""}
NO_WAIT = {"quiet_wait_seconds": 0.0}


def test_a_disturbed_run_is_measured_again_at_the_end_of_its_block_and_its_record_lists_the_attempt(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.plan("disturbed:1", "measured", limits=NO_WAIT)
    code, output = tiny_block.run(**NOT_QUIET)
    assert code == 0, output
    record, undisturbed = tiny_block.record(0), tiny_block.record(1)
    assert (record.attempt, record.planned_position, record.position, record.doubts) == (2, 0, 2, ())
    assert (undisturbed.attempt, undisturbed.planned_position, undisturbed.position) == (1, 1, 1)
    (earlier,) = record.earlier_attempts
    assert (earlier.attempt, earlier.position) == (1, 0)
    assert earlier.reason == "disturbed: other processes kept 1.40 of 2 cores busy while we used 0.60"
    assert Record.read(tiny_block.attempt() / "record.json").disturbance is not None
    assert record.total_seconds == pytest.approx(record.wall_seconds + (earlier.wall_seconds or math.nan))


def test_a_run_that_stays_disturbed_keeps_its_last_attempt(tiny_block: TinyBlock) -> None:
    tiny_block.plan("disturbed:9", limits={**NO_WAIT, "disturbed_retries": 1})
    code, output = tiny_block.run(**NOT_QUIET)
    assert code == 0, output
    record = tiny_block.record()
    assert (record.outcome, record.attempt, [doubt.code for doubt in record.doubts]) == (
        Outcome.measured,
        2,
        ["busy_cpu"],
    )
    assert tiny_block.done_file.exists()


def test_no_run_is_repeated_for_a_disturbance_if_that_is_not_wanted(tiny_block: TinyBlock) -> None:
    tiny_block.plan("disturbed:9", limits={**NO_WAIT, "disturbed_retries": 0})
    assert tiny_block.run(**NOT_QUIET)[0] == 0
    assert tiny_block.record().attempt == 1


def test_a_block_whose_repeats_are_all_disturbed_stops_repeating(tiny_block: TinyBlock) -> None:
    tiny_block.plan(*(f"disturbed:{times}" for times in range(90, 97)), limits=NO_WAIT)
    code, output = tiny_block.run(**NOT_QUIET)
    assert code == 0, output
    assert sorted(tiny_block.record(number).attempt for number in range(7)) == [1, 1, 2, 2, 2, 2, 2]


def test_a_block_that_ends_early_keeps_its_disturbed_runs_and_repeats_them_only_with_the_next_command(
    tiny_block: TinyBlock,
) -> None:
    tiny_block.plan("disturbed:1", "hang", limits={**NO_WAIT, "run_seconds": 60.0})
    with tiny_block.start(**NOT_QUIET) as process:
        until(lambda: tiny_block.attempt(1).exists())
        process.send_signal(signal.SIGTERM)
        ended(process)
    assert (tiny_block.record(0).attempt, tiny_block.record(0).disturbance is not None) == (1, True)
    tiny_block.plan("disturbed:1", "hang", limits={**NO_WAIT, "run_seconds": 1.0})
    tiny_block.run(**NOT_QUIET)
    assert (tiny_block.record(0).attempt, tiny_block.record(0).disturbance) == (2, None)


def test_a_time_limit_ends_a_block_before_it_repeats_disturbed_runs_and_they_stand(tiny_block: TinyBlock) -> None:
    tiny_block.plan("disturbed:1", limits={**NO_WAIT, "block_seconds": 0.01})
    code, output = tiny_block.run(**NOT_QUIET)
    assert code == 0, output
    assert tiny_block.record().disturbance is not None
    assert tiny_block.done_file.exists()


def test_on_a_machine_that_is_assumed_to_be_quiet_no_run_waits_or_is_repeated(tiny_block: TinyBlock) -> None:
    tiny_block.plan("disturbed:9", limits={"quiet_wait_seconds": 60.0})
    code, output = tiny_block.run(ACCELSWEEP_ASSUME_QUIET="1")
    assert (code, tiny_block.record().attempt, "waiting" in output) == (0, 1, False)


def test_a_run_waits_for_others_and_its_record_says_how_long(tiny_block: TinyBlock) -> None:
    spin = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", spin]) for _ in os.sched_getaffinity(0)]
    try:
        tiny_block.plan("measured", limits={"quiet_wait_seconds": 1.0})
        code, output = tiny_block.run(**NOT_QUIET)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert code == 0, output
    assert "waiting for a quiet machine (limits.quiet_wait_seconds): other processes keep" in output
    assert 1.0 <= tiny_block.record().waited_seconds < 10.0
