"""How runs end, with real processes: every bad ending is a row with its reason, and nothing is left behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from one_rank import make_spec
from patience import PATIENCE_SECONDS, until
from tiny_supervisor import Supervised, ended

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.ipc import Signals
from accelsweep.executor.monitor import Watch
from accelsweep.executor.processes import LocalRanks, RunLog, children
from accelsweep.records.run_record import Outcome

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
def test_a_bad_ending_is_a_crash_whose_reason_says_how(supervised: Supervised, task: str, words: list[str]) -> None:
    supervised.plan(task, limits=_ONE_TRY)
    code, output = supervised.run()
    assert code == 0, output
    record = supervised.record()
    assert record.outcome is Outcome.crashed
    for word in words:
        assert word in str(record.reason)


def test_a_password_in_a_log_line_does_not_reach_the_reason(supervised: Supervised) -> None:
    supervised.plan("raise_error", limits=_ONE_TRY)
    _, output = supervised.run()
    assert "hunter2" not in str(supervised.record().reason)
    assert "hunter2" not in output


def test_a_run_over_its_time_limit_is_timed_out(supervised: Supervised) -> None:
    supervised.plan("hang", limits={"run_seconds": 0.5, **_ONE_TRY})
    supervised.run()
    record = supervised.record()
    assert record.outcome is Outcome.timed_out
    assert "0.5 s (limits.run_seconds)" in str(record.reason)
    assert 0.5 <= record.wall_seconds < PATIENCE_SECONDS, "left alone it would have gone on for 1000 s"


def test_a_run_that_ignores_sigterm_is_killed_and_the_reason_says_so(supervised: Supervised) -> None:
    supervised.plan("stubborn", limits={"run_seconds": 0.5, **_ONE_TRY})
    supervised.run()
    assert supervised.record().outcome is Outcome.timed_out
    assert "ignored SIGTERM" in str(supervised.record().reason)


def test_what_a_rank_reports_because_of_our_own_signal_is_not_the_cause(supervised: Supervised) -> None:
    supervised.plan("confess_on_sigterm", limits={"run_seconds": 0.5, **_ONE_TRY})
    supervised.run()
    assert supervised.record().outcome is Outcome.timed_out


@pytest.mark.real
def test_when_one_rank_dies_its_waiting_peers_are_ended_and_given_no_grace(supervised: Supervised) -> None:
    supervised.plan("first_rank_dies", devices=2, limits={"retries": 0, "stop_grace_seconds": 2 * PATIENCE_SECONDS})
    supervised.run()
    record = supervised.record()
    assert record.wall_seconds < PATIENCE_SECONDS
    assert record.outcome is Outcome.crashed
    assert str(record.reason).startswith("rank 0 was ended by SIGKILL")


def test_out_of_memory_on_one_rank_wins_over_the_collective_error_of_its_peer(supervised: Supervised) -> None:
    supervised.plan("memory_on_rank_1", devices=2, limits=_ONE_TRY)
    supervised.run()
    assert supervised.record().outcome is Outcome.out_of_memory
    assert supervised.record().reason == "rank 1: CUDA out of memory"


def test_a_process_that_left_the_group_is_ended_with_the_run(supervised: Supervised) -> None:
    supervised.plan("leave_orphan")
    supervised.run()
    assert supervised.record().outcome is Outcome.measured
    assert not Path(f"/proc/{int(supervised.log())}").exists()


def test_a_run_that_breaks_after_its_results_is_measured_with_a_doubt(supervised: Supervised) -> None:
    supervised.plan("break_at_the_end")
    supervised.run()
    assert supervised.record().outcome is Outcome.measured
    assert [doubt.code for doubt in supervised.record().doubts] == ["bad_teardown"]


@pytest.mark.long  # the test above breaks after its results; only here its 10 s of grace are waited for
@pytest.mark.real
def test_a_run_that_hangs_after_its_results_is_ended_and_its_results_count(supervised: Supervised) -> None:
    supervised.plan("linger", limits=_ONE_TRY)
    started = time.monotonic()
    supervised.run()
    assert 10.0 < time.monotonic() - started < PATIENCE_SECONDS, "left alone it would have hung for 1000 s"
    assert supervised.record().outcome is Outcome.measured


def test_a_log_is_bounded_and_keeps_its_beginning_and_its_end(supervised: Supervised) -> None:
    supervised.plan("talk", limits={"log_bytes": 100_000})
    supervised.run()
    log = supervised.log()
    assert len(log) < 100_200
    assert log.startswith("the first line\n")
    assert log.endswith("the last line\n")
    assert "bytes left out: limits.log_bytes" in log


def test_a_run_that_never_stops_printing_keeps_to_its_time_limit(supervised: Supervised) -> None:
    supervised.plan("flood", limits={"run_seconds": 1.0, "log_bytes": 100_000, **_ONE_TRY})
    supervised.run()
    record = supervised.record()
    assert record.outcome is Outcome.timed_out
    assert "1 s (limits.run_seconds)" in str(record.reason)
    assert record.wall_seconds < PATIENCE_SECONDS
    assert len(supervised.log()) < 100_200


def test_ctrl_c_ends_a_run_that_never_stops_printing(supervised: Supervised) -> None:
    supervised.plan("flood", limits=_ONE_TRY)
    process = supervised.start()
    log = supervised.attempt() / "run.log"
    until(lambda: log.exists() and log.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    code, output = ended(process)
    assert code == 130, output


def test_a_stop_that_is_heard_of_with_the_end_of_the_ranks_interrupts_them(tmp_path: Path) -> None:
    """Slurm ends the ranks of a job itself; a container may hand the signal on to the supervisor after that."""
    signals = Signals()

    class EndedBySlurm(LocalRanks):
        def look(self) -> None:
            self.statuses[0] = -signal.SIGTERM
            signals.stop = signal.SIGTERM

    with RunLog(tmp_path / "run.log", 1000) as log, signals.caught():
        log.close_write_end()
        watch = Watch(make_spec(tmp_path), EndedBySlurm([0]), Limits(), log, signals)
        ending = watch.until_the_end(0, children())
    assert (ending.cause, ending.statuses) == ("interrupted", (-signal.SIGTERM,))
