"""A block from beginning to end, with real processes: what is measured, skipped, tried again, stopped, taken over."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS, until
from tiny_supervisor import Supervised
from tiny_sweep import plan_sweep

from accelsweep.config.site import Site
from accelsweep.executor.result_reuse import audit
from accelsweep.json_documents import sha256_file
from accelsweep.records.file_lock import Holder, take
from accelsweep.records.plan import Done, Hold, Manifest
from accelsweep.records.run_record import Outcome, Record
from accelsweep.worker.run_spec import RunSpec


def test_a_spent_block_limit_starts_no_further_run_and_the_next_supervisor_goes_on(supervised: Supervised) -> None:
    supervised.plan("slow:1", "slow:2", "slow:3", limits={"block_seconds": 0.01})
    for finished in range(1, 4):
        code, output = supervised.run()
        done = supervised.folder.done(supervised.block.stem).exists()
        assert len(list(supervised.folder.root.glob("runs/*/record.json"))) == finished
        assert (code, done) == ((0, True) if finished == 3 else (1, False)), output
        assert ("limits.block_seconds" in output) == (finished < 3)


def test_every_wanted_run_gets_a_record_and_the_done_file_lists_their_digests(supervised: Supervised) -> None:
    supervised.plan("measured", "exit_three", repeats=2)
    code, output = supervised.run()
    assert code == 0, output
    done = Done.read(supervised.folder.done(supervised.block.stem))
    assert done.records == {run: sha256_file(supervised.folder.record(run)) for run in supervised.runs()}
    outcomes = [supervised.record(number).outcome for number in range(4)]
    assert outcomes == [Outcome.measured, Outcome.crashed] * 2
    assert not supervised.folder.hold(supervised.block.stem).exists()


def test_promised_devices_that_are_not_there_are_asked_for_again_by_the_next_command(
    supervised: Supervised,
) -> None:
    """A GPU that a node has lost is no answer about the setting, which would settle it for good."""
    cells = [{"act": "measured", "accelerator": "cuda", "devices": 64}]
    supervised.folder, supervised.block = plan_sweep(supervised.home, cells)
    for attempt in (1, 2):
        supervised.run()
        record = supervised.record(0)
        assert (record.outcome, record.attempt) == (Outcome.crashed, attempt)
    assert "fewer than its site's inventory states" in (record.reason or "")


def test_a_record_carries_the_place_of_its_run_and_the_results_of_rank_0(supervised: Supervised) -> None:
    supervised.plan("silent", "measured")
    supervised.run()
    record = supervised.record(1)
    assert (record.position, record.attempt, record.repeat, record.block) == (1, 1, 0, supervised.block.stem)
    assert record.metrics["samples_per_second"].value == 100.0
    assert record.started_at < record.finished_at
    assert record.fingerprint.software.keys() == {"torch", "lightning"}
    assert record.git["commit"] is None
    assert (supervised.folder.run(supervised.runs()[1]) / "steps.parquet").read_bytes() == b"steps of rank 0"


def test_each_run_vouches_for_the_sources_that_it_found_and_says_if_they_changed_meanwhile(
    supervised: Supervised,
) -> None:
    tasks = ("measured:1", "edit_source", "measured:2")
    cells = [{"act": task, "model": {"_target_": "mine.Net"}} for task in tasks]
    supervised.folder, supervised.block = plan_sweep(supervised.home, cells)
    (supervised.home / "mine.py").write_text("# as planned\n")
    supervised.run()
    first, editing, last = (supervised.record(number) for number in range(3))
    assert first.fingerprint.sources == editing.fingerprint.sources != last.fingerprint.sources
    assert [[doubt.code for doubt in record.doubts] for record in (first, editing, last)] == [
        [], ["sources_changed"], []
    ]  # fmt: skip
    assert "mine changed while the run was going on" in editing.doubts[0].message
    output = supervised.run()[1]
    assert "3 runs wanted, 2 to measure" in output, "those that ran before the edit, or during it"


def test_on_a_cluster_a_rank_is_told_the_threads_that_its_cell_asks_for(supervised: Supervised) -> None:
    """Its block may hold cells that ask for more cores; on one machine it finds its share itself."""
    for site, threads in ((Site(name="cluster", scheduler="slurm"), 1), (Site(name="local"), None)):
        supervised.folder, supervised.block = plan_sweep(
            supervised.home, [{"act": "measured", "threads": None}], name=site.name, site=site
        )
        code, output = supervised.run()
        assert code == 0, output
        assert RunSpec.read(supervised.attempt() / "run-spec.json").threads == threads


def test_a_finished_block_is_skipped_without_touching_a_record(supervised: Supervised) -> None:
    supervised.plan("measured:1", "measured:2")
    supervised.run()
    before = [supervised.folder.record(run).stat().st_mtime_ns for run in supervised.runs()]
    supervised.folder.done(supervised.block.stem).unlink()
    code, output = supervised.run()
    assert code == 0
    assert "2 runs wanted, 0 to measure" in output
    assert [supervised.folder.record(run).stat().st_mtime_ns for run in supervised.runs()] == before
    assert supervised.folder.done(supervised.block.stem).exists()


def test_a_crashed_run_is_no_answer_and_is_tried_again_by_the_next_command(supervised: Supervised) -> None:
    supervised.plan("exit_three", limits={"retries": 0})
    supervised.run()
    assert supervised.record().attempt == 1
    supervised.run()
    assert supervised.record().attempt == 2
    assert Record.read(supervised.attempt(attempt=1) / "record.json").attempt == 1


def test_a_run_measured_under_other_software_is_measured_again_and_both_are_kept(supervised: Supervised) -> None:
    supervised.plan("measured")
    supervised.run()
    old = supervised.record()
    software = {**old.fingerprint.software, "torch": "1.0.0"}
    changed = old.model_copy(update={"fingerprint": old.fingerprint.model_copy(update={"software": software})})
    changed.write(supervised.folder.record(old.run))
    _, output = supervised.run()
    assert "software torch: 1.0.0 then" in output
    assert supervised.record().attempt == 2
    assert Record.read(supervised.attempt(attempt=1) / "record.json") == changed
    assert (supervised.attempt(attempt=1) / "steps.parquet").exists()


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: text.replace(b"measured", b"measurad")]
)
def test_a_damaged_record_is_set_aside_named_and_measured_again(supervised: Supervised, damage) -> None:  # type: ignore[no-untyped-def]
    supervised.plan("measured")
    supervised.run()
    path = supervised.folder.record(supervised.runs()[0])
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    code, output = supervised.run()
    assert code == 0
    assert str(path) in output
    assert path.with_name("record.json.damaged-1").read_bytes() == damaged
    assert supervised.record().attempt == 2


def test_the_record_of_another_run_is_not_taken_for_this_one(supervised: Supervised) -> None:
    supervised.plan("measured:1", "measured:2")
    supervised.run()
    first, second = supervised.runs()
    supervised.folder.record(second).write_bytes(supervised.folder.record(first).read_bytes())
    _, output = supervised.run()
    assert "record of another run" in output
    assert supervised.record(1).run == second


def test_a_deleted_run_folder_is_measured_again(supervised: Supervised) -> None:
    import shutil

    supervised.plan("measured:1", "measured:2")
    supervised.run()
    shutil.rmtree(supervised.folder.run(supervised.runs()[0]))
    _, output = supervised.run()
    assert "2 runs wanted, 1 to measure" in output
    assert supervised.record(0).attempt == 1


def test_signals_and_lost_results_are_retried_and_counted(supervised: Supervised) -> None:
    supervised.plan("segfault", limits={"retries": 2})
    supervised.run()
    assert supervised.record().attempt == 3
    assert {path.name for path in supervised.attempt().parent.iterdir()} == {"1", "2", "3"}


def test_running_out_of_memory_is_never_retried(supervised: Supervised) -> None:
    supervised.plan("memory_on_rank_1", devices=2, limits={"retries": 5})
    supervised.run()
    assert supervised.record().outcome is Outcome.out_of_memory
    assert supervised.record().attempt == 1


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_supervisor_keeps_finished_runs_and_ends_the_running_one(
    supervised: Supervised, number: signal.Signals, code: int
) -> None:
    supervised.plan("measured", "hang")
    process = supervised.start()
    started = supervised.attempt(run=1) / "run-spec.json"
    until(started.exists)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code, output
    assert supervised.record(0).outcome is Outcome.measured
    assert not supervised.folder.record(supervised.runs()[1]).exists()
    assert not supervised.folder.done(supervised.block.stem).exists()
    assert not supervised.folder.hold(supervised.block.stem).exists()
    assert not (supervised.attempt(run=1) / "started.json").exists()


def test_the_stop_file_ends_the_block_before_the_next_run(supervised: Supervised) -> None:
    supervised.plan("measured")
    supervised.folder.stop.touch()
    code, output = supervised.run()
    assert code == 1
    assert "sweeps/tiny/stop stands" in output
    assert not supervised.folder.done(supervised.block.stem).exists()


def test_a_run_that_took_its_supervisor_down_twice_is_crashed_and_the_others_are_measured(
    supervised: Supervised,
) -> None:
    supervised.plan("kill_supervisor", "measured")
    assert supervised.run()[0] == -signal.SIGKILL
    assert supervised.run()[0] == -signal.SIGKILL
    assert supervised.record(1).outcome is Outcome.measured, "it waited for the run that ends supervisors"
    code, output = supervised.run()
    assert code == 0, output
    assert supervised.record(0).outcome is Outcome.crashed
    assert "its supervisor died 2 times while it ran (attempts 1, 2)" in str(supervised.record(0).reason)
    assert supervised.record(1).outcome is Outcome.measured


def test_new_runs_come_before_failed_ones_and_those_that_ended_a_supervisor_come_last(supervised: Supervised) -> None:
    supervised.plan("kill_supervisor:1", "exit_three", "kill_supervisor:2", "measured", limits={"retries": 0})
    said = [supervised.run()[1] for _ in range(4)]
    first, failed, second, measured = supervised.runs()
    turns = [[run for run in supervised.runs() if f"{run}: attempt" in output] for output in said]
    assert turns == [[first], [failed, second], [first, failed, measured], [failed, second]]
    started = [line.split()[1].rstrip(":") for line in said[2].splitlines() if ": attempt" in line]
    assert started == [measured, failed, first]


def test_what_failed_is_tried_again_by_the_next_command_and_not_by_the_same_one(supervised: Supervised) -> None:
    supervised.plan("exit_three", "measured", limits={"retries": 0})
    head = take(supervised.folder.of_head("claim"), "head")
    assert isinstance(head, Holder)
    supervised.run()
    assert audit(supervised.folder).reopened == ()
    assert "2 runs wanted, 0 to measure" in supervised.run()[1]
    head.release()
    head = take(supervised.folder.of_head("claim"), "head")
    assert isinstance(head, Holder)
    assert audit(supervised.folder).reopened == (supervised.block.stem,)
    assert "2 runs wanted, 1 to measure" in supervised.run()[1]
    head.release()
    assert supervised.record().attempt == 2


def test_a_clean_stop_does_not_count_as_taking_the_supervisor_down(supervised: Supervised) -> None:
    supervised.plan("hang", limits={"run_seconds": 3.0, "retries": 0, "stop_grace_seconds": 2 * PATIENCE_SECONDS})
    for attempt in (1, 2, 3):
        process = supervised.start()
        until((supervised.attempt(attempt=attempt) / "run-spec.json").exists)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)  # less than the grace: the signal reached the ranks
    supervised.run()
    assert supervised.record().outcome is Outcome.timed_out


def test_a_second_supervisor_waits_for_a_living_first_and_then_has_nothing_to_do(supervised: Supervised) -> None:
    supervised.plan("lasting")
    first = supervised.start()
    until(supervised.folder.hold(supervised.block.stem).exists)
    code, output = supervised.run()
    first.communicate(timeout=PATIENCE_SECONDS)
    assert f"is being run by process {first.pid}" in output
    assert (code, supervised.record().attempt) == (0, 1)
    assert "1 runs wanted, 0 to measure" in output


def test_cancel_old_ends_the_first_supervisor_and_takes_its_block_over(supervised: Supervised) -> None:
    supervised.plan("hang_at_first", limits={"retries": 0})
    first = supervised.start()
    until((supervised.attempt() / "run-spec.json").exists)
    code, output = supervised.run("--cancel-old")
    first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 143
    assert f"sending SIGTERM to process {first.pid}" in output
    assert (code, supervised.record().attempt) == (0, 2)


def test_the_claim_of_a_dead_supervisor_is_taken_over_at_once(supervised: Supervised) -> None:
    supervised.plan("measured")
    path = supervised.folder.hold(supervised.block.stem)
    hold = Hold(
        block=supervised.block.stem, host=os.uname().nodename, pid=os.getpid(), process_started=1.0, since="long ago"
    )
    hold.write(path)
    code, output = supervised.run()
    assert code == 0
    assert "waiting" not in output


def test_too_little_free_disk_ends_the_block_before_anything_is_measured(supervised: Supervised) -> None:
    supervised.plan("measured", limits={"free_disk_bytes": 10**18})
    code, output = supervised.run()
    assert code == 1
    assert "the disk of sweeps/tiny has" in output
    assert "limits.free_disk_bytes" in output
    assert not supervised.folder.run(supervised.runs()[0]).exists()


def test_a_damaged_block_or_manifest_is_named_and_nothing_is_run(supervised: Supervised) -> None:
    supervised.plan("measured")
    for path in (supervised.block, supervised.folder.manifest):
        whole = path.read_bytes()
        path.write_bytes(whole[:-20])
        code, output = supervised.run()
        assert code == 1
        assert str(path) in output
        assert "accelsweep run" in output
        path.write_bytes(whole)
    assert not supervised.folder.run(supervised.runs()[0]).exists()


def test_a_path_that_is_no_block_is_wrong_input(supervised: Supervised, tmp_path: Path) -> None:
    supervised.plan("measured")
    supervised.block = tmp_path / "elsewhere.json"
    code, output = supervised.run()
    assert code == 2
    assert "sweeps/NAME/blocks/BLOCK.json" in output


def test_runs_that_the_plan_no_longer_wants_are_not_measured(supervised: Supervised) -> None:
    supervised.plan("measured:1", "measured:2")
    manifest = Manifest.read(supervised.folder.manifest)
    first = supervised.runs()[0]
    planned = manifest.blocks[0].model_copy(update={"runs": (first,)})
    manifest.model_copy(update={"blocks": (planned,)}).write(supervised.folder.manifest)
    supervised.run()
    assert Done.read(supervised.folder.done(supervised.block.stem)).records.keys() == {first}
    assert [path.name for path in (supervised.folder.root / "runs").iterdir()] == [first]
