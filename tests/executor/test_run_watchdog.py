"""How runs end, with real processes: every failure is a record with its reason, and no process is left behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from one_rank import make_spec
from polling import PATIENCE_SECONDS, until
from tiny_executor import TinyBlock, ended

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.launch import LocalRanks, children
from accelsweep.executor.run_log import RunLog
from accelsweep.executor.run_watchdog import Monitor
from accelsweep.ipc import Signals
from accelsweep.results import Outcome

_ONE_TRY = {"retries": 0, "stop_grace_seconds": 0.5}


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("segfault", ["SIGSEGV (segmentation fault)", "about to touch memory that is not ours"]),
        ("exit_three", ["exit code 3", "sys.exit(3)"]),
        ("raise_error", ["exit code 1", "ValueError: shapes 3 and 4 do not match"]),
        ("silent", ["exit code 0", "left no result"]),
        ("garbled", ["exit code 0", "left no result"]),
    ],
)
def test_a_failed_run_is_a_crash_with_its_reason(tiny_block: TinyBlock, task: str, words: list[str]) -> None:
    tiny_block.plan(task, limits=_ONE_TRY)
    code, output = tiny_block.run()
    assert code == 0, output
    record = tiny_block.record()
    assert record.outcome is Outcome.crashed
    for word in words:
        assert word in str(record.reason)


def test_a_password_in_a_log_line_does_not_reach_the_reason(tiny_block: TinyBlock) -> None:
    tiny_block.plan("raise_error", limits=_ONE_TRY)
    _, output = tiny_block.run()
    assert "hunter2" not in str(tiny_block.record().reason)
    assert "hunter2" not in output


def test_a_run_over_its_time_limit_is_timed_out(tiny_block: TinyBlock) -> None:
    tiny_block.plan("hang", limits={"run_seconds": 0.5, **_ONE_TRY})
    tiny_block.run()
    record = tiny_block.record()
    assert record.outcome is Outcome.timed_out
    assert "0.5 s (limits.run_seconds)" in str(record.reason)
    assert 0.5 <= record.wall_seconds < PATIENCE_SECONDS, "it would have hung for 1000 s"


def test_a_run_that_ignores_sigterm_is_killed_and_the_reason_says_so(tiny_block: TinyBlock) -> None:
    tiny_block.plan("stubborn", limits={"run_seconds": 0.5, **_ONE_TRY})
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.timed_out
    assert "ignored SIGTERM" in str(tiny_block.record().reason)


def test_a_result_caused_by_our_own_signal_is_not_the_root_cause(tiny_block: TinyBlock) -> None:
    tiny_block.plan("confess_on_sigterm", limits={"run_seconds": 0.5, **_ONE_TRY})
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.timed_out


@pytest.mark.real
def test_when_a_rank_dies_its_waiting_peers_are_ended_without_the_full_grace_period(tiny_block: TinyBlock) -> None:
    tiny_block.plan("first_rank_dies", devices=2, limits={"retries": 0, "stop_grace_seconds": 2 * PATIENCE_SECONDS})
    tiny_block.run()
    record = tiny_block.record()
    assert record.wall_seconds < PATIENCE_SECONDS
    assert record.outcome is Outcome.crashed
    assert str(record.reason).startswith("rank 0 was ended by SIGKILL")


def test_out_of_memory_on_one_rank_wins_over_the_collective_error_of_its_peer(tiny_block: TinyBlock) -> None:
    tiny_block.plan("memory_on_rank_1", devices=2, limits=_ONE_TRY)
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.out_of_memory
    assert tiny_block.record().reason == "rank 1: CUDA out of memory"


def test_a_process_outside_the_group_is_killed_with_the_run(tiny_block: TinyBlock) -> None:
    tiny_block.plan("leave_orphan")
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.measured
    assert not Path(f"/proc/{int(tiny_block.log())}").exists()


def test_a_run_that_breaks_after_its_results_is_measured_with_a_doubt(tiny_block: TinyBlock) -> None:
    tiny_block.plan("break_at_the_end")
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.measured
    assert [doubt.code for doubt in tiny_block.record().doubts] == ["bad_teardown"]


@pytest.mark.long  # the test above breaks after its results; only this one waits for the 10 s of teardown
@pytest.mark.real
def test_a_run_that_hangs_in_teardown_is_ended_and_its_results_count(tiny_block: TinyBlock) -> None:
    tiny_block.plan("linger", limits=_ONE_TRY)
    started = time.monotonic()
    tiny_block.run()
    assert 10.0 < time.monotonic() - started < PATIENCE_SECONDS, "it would have hung for 1000 s"
    assert tiny_block.record().outcome is Outcome.measured


def test_a_log_is_bounded_and_keeps_its_start_and_end(tiny_block: TinyBlock) -> None:
    tiny_block.plan("talk", limits={"log_bytes": 100_000})
    tiny_block.run()
    log = tiny_block.log()
    assert len(log) < 100_200
    assert log.startswith("the first line\n")
    assert log.endswith("the last line\n")
    assert "bytes left out: limits.log_bytes" in log


def test_a_run_that_never_stops_printing_is_ended_at_its_time_limit(tiny_block: TinyBlock) -> None:
    tiny_block.plan("flood", limits={"run_seconds": 1.0, "log_bytes": 100_000, **_ONE_TRY})
    tiny_block.run()
    record = tiny_block.record()
    assert record.outcome is Outcome.timed_out
    assert "1 s (limits.run_seconds)" in str(record.reason)
    assert record.wall_seconds < PATIENCE_SECONDS
    assert len(tiny_block.log()) < 100_200


def test_ctrl_c_ends_a_run_that_never_stops_printing(tiny_block: TinyBlock) -> None:
    tiny_block.plan("flood", limits=_ONE_TRY)
    process = tiny_block.start()
    log = tiny_block.attempt() / "run.log"
    until(lambda: log.exists() and log.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    code, output = ended(process)
    assert code == 130, output


def test_a_stop_that_arrives_with_the_end_of_the_ranks_interrupts_the_run(tmp_path: Path) -> None:
    """Slurm signals the ranks of a job itself; a container may pass the signal on to the executor after that."""
    signals = Signals()

    class EndedBySlurm(LocalRanks):
        def poll(self) -> None:
            self.exit_codes[0] = -signal.SIGTERM
            signals.stop = signal.SIGTERM

    with RunLog(tmp_path / "run.log", 1000) as log, signals.caught():
        log.close_write_end()
        monitor = Monitor(make_spec(tmp_path), EndedBySlurm([0]), Limits(), log, signals)
        ending = monitor.wait(0, children())
    assert (ending.cause, ending.exit_codes) == ("interrupted", (-signal.SIGTERM,))
