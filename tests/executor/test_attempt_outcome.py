"""Which of several failures is a run's root cause, without processes; and memory failures that killed the executor."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tiny_executor import TinyBlock, result

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.attempt_outcome import Conclusion, classify, memory_failure
from accelsweep.executor.run_watchdog import Ending
from accelsweep.records.run_files import Started
from accelsweep.results import Outcome, RankResult

LIMITS = Limits(run_seconds=60.0)


def ending(*exit_codes: int | None, **changes: Any) -> Ending:
    fields: dict[str, Any] = {
        "exit_codes": exit_codes,
        "cause": None,
        "reported": frozenset(),
        "signalled": frozenset(),
        "ignored_sigterm": False,
        "oom_kills": 0,
        "wall_seconds": 1.0,
    }
    return Ending(**fields | changes)


def conclusion(end: Ending, *results: RankResult, log_tail: str = "") -> Conclusion:
    return classify(end, {item.rank: item for item in results}, log_tail, LIMITS)


MEMORY = (Outcome.out_of_memory, "out_of_memory", "CUDA out of memory")
NAN = (Outcome.diverged, "diverged", "loss is NaN at step 7")
USER = (Outcome.crashed, "user_exception", "ValueError: no")
PEER = (Outcome.crashed, "collective", "Connection closed by peer")


@pytest.mark.parametrize(("stronger", "weaker"), [(MEMORY, NAN), (NAN, USER), (USER, PEER), (MEMORY, PEER)])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_stronger_cause_wins_on_whichever_rank_it_is(stronger: Any, weaker: Any, swapped: bool) -> None:
    first, second = (weaker, stronger) if swapped else (stronger, weaker)
    found = conclusion(ending(1, 1), result(0, *first), result(1, *second))
    assert found.outcome is stronger[0]
    assert found.reason == f"rank {int(swapped)}: {stronger[2]}"


def test_a_collective_error_wins_over_a_peer_that_we_signalled() -> None:
    end = ending(1, -signal.SIGTERM, cause="rank_ended", signalled=frozenset({1}))
    assert conclusion(end, result(0, *PEER)).reason == "rank 0: Connection closed by peer"


@pytest.mark.parametrize("status", [9, -signal.SIGSEGV])
def test_a_rank_that_died_without_a_result_explains_the_collective_error_of_its_peer(status: int) -> None:
    found = conclusion(ending(1, status), result(0, *PEER))
    assert found.outcome is Outcome.crashed
    assert str(found.reason).startswith("rank 1 ")
    assert found.retryable


def test_an_exception_in_user_code_wins_over_a_peer_that_died_without_a_result() -> None:
    assert conclusion(ending(-signal.SIGABRT, 1), result(1, *USER)).reason == "rank 1: ValueError: no"


def test_a_run_whose_ranks_all_measured_is_measured_however_the_processes_ended() -> None:
    assert conclusion(ending(-signal.SIGKILL, cause="hung_teardown"), result(0)) == Conclusion(Outcome.measured, None)


def test_a_run_with_a_missing_result_is_not_measured() -> None:
    found = conclusion(ending(0, 0), result(0))
    assert found.outcome is Outcome.crashed
    assert found.reason == "rank 1 ended with exit code 0 and left no result"


def test_a_sigkill_that_the_kernel_counted_is_out_of_memory() -> None:
    found = conclusion(ending(-signal.SIGKILL, oom_kills=1))
    assert found.outcome is Outcome.out_of_memory
    assert not found.retryable


def test_any_other_sigkill_is_a_retryable_crash() -> None:
    found = conclusion(ending(-signal.SIGKILL))
    assert (found.outcome, found.reason, found.retryable) == (Outcome.crashed, "it was ended by SIGKILL", True)


def test_our_own_sigkill_is_not_mistaken_for_the_kernels() -> None:
    end = ending(-signal.SIGKILL, oom_kills=1, cause="time_limit", signalled=frozenset({0}), ignored_sigterm=True)
    assert conclusion(end).outcome is Outcome.timed_out


def test_a_loader_worker_that_the_kernel_killed_is_out_of_memory() -> None:
    words = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."
    one = result(0, Outcome.crashed, "user_exception", words)
    assert conclusion(ending(1, oom_kills=1), one).outcome is Outcome.out_of_memory
    assert conclusion(ending(1), one).outcome is Outcome.crashed


def test_an_abort_for_lack_of_memory_in_native_code_is_out_of_memory() -> None:
    words = "terminate called after throwing an instance of 'std::bad_alloc'"
    assert conclusion(ending(-signal.SIGABRT), log_tail=words).outcome is Outcome.out_of_memory
    assert conclusion(ending(-signal.SIGABRT), log_tail="assertion failed").outcome is Outcome.crashed


def test_a_lost_peer_is_retryable_but_an_exception_in_user_code_is_not() -> None:
    assert not conclusion(ending(1), result(0, *USER)).retryable
    assert conclusion(ending(1), result(0, *PEER)).retryable


def test_a_time_limit_does_not_hide_an_earlier_report() -> None:
    end = ending(-signal.SIGTERM, -signal.SIGTERM, cause="time_limit", signalled=frozenset({0, 1}))
    assert conclusion(end, result(1, *USER)).reason == "rank 1: ValueError: no"


def test_the_reason_quotes_the_log_tail() -> None:
    found = conclusion(ending(-signal.SIGSEGV), log_tail="loading weights")
    assert found.reason == "it was ended by SIGSEGV (segmentation fault); last lines of its log: loading weights"


def test_a_lost_rank_explains_the_collective_errors_of_its_peers() -> None:
    lost = {1: "node 1 on gpu2, which did not report how it ended; srun ended with exit code 137"}
    found = conclusion(ending(1, None, lost=lost), result(0, *PEER))
    assert found.outcome is Outcome.crashed
    assert found.reason == f"rank 1 was lost: {lost[1]}"
    assert found.retryable


def test_ranks_that_were_killed_with_their_node_are_not_the_root_cause() -> None:
    lost = dict.fromkeys((0, 1), "node 0 on gpu1, which did not report how it ended; srun ended with exit code 137")
    killed: dict[str, Any] = {"cause": "rank_ended", "signalled": frozenset({0}), "ignored_sigterm": True, "lost": lost}
    assert conclusion(ending(None, -11, **killed)).reason == "rank 1 was ended by SIGSEGV (segmentation fault)"


@pytest.mark.parametrize("died", [None, -signal.SIGKILL])
def test_a_rank_that_srun_ended_because_a_peer_died_is_not_the_root_cause(died: int | None) -> None:
    """Srun may be faster than the collective error. Where nothing else explains the end, the signal does."""
    lost = {} if died else {1: "node 1 on gpu2, which did not report how it ended; srun ended with exit code 137"}
    found = conclusion(ending(-signal.SIGTERM, died, lost=lost))
    assert str(found.reason).startswith("rank 1 was ")
    assert conclusion(ending(-signal.SIGTERM, 1), result(1, *PEER)).reason == "rank 0 was ended by SIGTERM"


def test_a_rank_lost_for_lack_of_memory_is_out_of_memory_and_the_reason_quotes_slurm() -> None:
    words = "slurmstepd-gpu2: error: StepId=4.1 exceeded memory limit (4158427136 > 2097152000), being killed"
    lost = {1: "node 1 on gpu2, which did not report how it ended; srun ended with exit code 137"}
    found = conclusion(ending(1, None, lost=lost), result(0, *PEER), log_tail=f"step 7 | {words} | srun: Terminating")
    assert found.outcome is Outcome.out_of_memory
    assert words in str(found.reason)


JOB_KILLED = "slurmstepd-gpu1: error: StepId=12.0 exceeded memory limit (4158427136 > 2097152000), being killed"


PROCESS_KILLED = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks have been OOM Killed."
)


def job_log(path: Path, line: str) -> str:
    """Write the log of a job, in which a run mentions memory too; return its path."""
    path.write_text(f"RuntimeError: CUDA out of memory, says a run\n{line}\nsrun: error: gpu1: task 0: Killed\n")
    return str(path)


def failure(*logs: str | None) -> str | None:
    """Return the line about lack of memory in these job logs."""
    line = memory_failure(logs)
    return line.text if line else None


@pytest.mark.parametrize("line", [JOB_KILLED, "slurmstepd: error: Exceeded job memory limit"])
def test_slurms_line_about_a_job_killed_for_its_memory_is_enough(tmp_path: Path, line: str) -> None:
    assert failure(job_log(tmp_path / "7.log", line)) == line


@pytest.mark.parametrize(
    "line",
    [
        PROCESS_KILLED,
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.0 cgroup. Some of your processes may be killed",
        "srun: error: node7: task 0: Out Of Memory",
    ],
)
def test_a_line_about_a_single_process_counts_if_two_jobs_have_one(tmp_path: Path, line: str) -> None:
    """Slurm prints it at the end of a job, whichever run it was about and whatever ended the job."""
    first, second = (job_log(tmp_path / name, line) for name in ("7.log", "8.log"))
    preempted = job_log(tmp_path / "9.log", "slurmstepd: error: *** JOB 9 ON gpu1 CANCELLED DUE TO PREEMPTION ***")
    assert failure(first) is None
    assert failure(first, second) == line
    assert failure(first, preempted) is None
    assert failure(first, first) is None, "one requeued job"


def test_a_job_that_only_reached_its_limit_was_not_killed(tmp_path: Path) -> None:
    line = "slurmstepd: error: Exceeded step memory limit at some point."
    assert failure(*(job_log(tmp_path / name, line) for name in ("7.log", "8.log"))) is None


def test_output_of_a_run_is_not_mistaken_for_slurms(tmp_path: Path) -> None:
    log = job_log(tmp_path / "7.log", "my program exceeded memory limit")
    assert failure(log, log) is None
    assert failure(str(tmp_path / "none.log")) is None
    assert failure(None) is None
    assert failure() is None


def kill_executor(tiny_block: TinyBlock, attempt: int, line: str) -> None:
    """Have the first run kill its executor, in a job whose log has this line."""
    assert tiny_block.run()[0] == -signal.SIGKILL
    started = tiny_block.attempt(attempt=attempt) / "started.json"
    log = job_log(tiny_block.home / f"{attempt}.log", line)
    Started.read(started).model_copy(update={"job_log": log}).write(started)


def test_a_run_that_took_its_job_down_for_lack_of_memory_is_out_of_memory_at_once(tiny_block: TinyBlock) -> None:
    tiny_block.plan("kill_executor", "measured")
    kill_executor(tiny_block, 1, JOB_KILLED)
    code, output = tiny_block.run()
    assert code == 0, output
    assert tiny_block.record(0).outcome is Outcome.out_of_memory
    assert JOB_KILLED in str(tiny_block.record(0).reason)
    assert tiny_block.record(1).outcome is Outcome.measured


def test_a_run_in_whose_job_a_process_was_killed_for_memory_is_retried_once(tiny_block: TinyBlock) -> None:
    tiny_block.plan("kill_executor")
    kill_executor(tiny_block, 1, PROCESS_KILLED)
    kill_executor(tiny_block, 2, PROCESS_KILLED)
    tiny_block.run()
    assert tiny_block.record().outcome is Outcome.out_of_memory
    assert PROCESS_KILLED in str(tiny_block.record().reason)
