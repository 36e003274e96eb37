"""Which of several endings explains a run: every rule of precedence, without processes."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from tiny_supervisor import result

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.monitor import Ending
from accelsweep.executor.outcome import Conclusion, classify
from accelsweep.records.run_record import Outcome
from accelsweep.worker.run_spec import RankResult

LIMITS = Limits(run_seconds=60.0)


def ending(*statuses: int | None, **changes: Any) -> Ending:
    known: dict[str, Any] = {
        "statuses": statuses,
        "cause": None,
        "reported": frozenset(),
        "signalled": frozenset(),
        "ignored_sigterm": False,
        "oom_kills": 0,
        "wall_seconds": 1.0,
    }
    return Ending(**known | changes)


def conclusion(end: Ending, *results: RankResult, last_words: str = "") -> Conclusion:
    return classify(end, {one.rank: one for one in results}, last_words, LIMITS)


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


def test_a_collective_error_wins_over_a_peer_that_was_ended_by_a_signal_of_ours() -> None:
    end = ending(1, -signal.SIGTERM, cause="rank_ended", signalled=frozenset({1}))
    assert conclusion(end, result(0, *PEER)).reason == "rank 0: Connection closed by peer"


@pytest.mark.parametrize("status", [9, -signal.SIGSEGV])
def test_a_rank_that_died_without_a_word_explains_the_collective_error_of_its_peer(status: int) -> None:
    found = conclusion(ending(1, status), result(0, *PEER))
    assert found.outcome is Outcome.crashed
    assert str(found.reason).startswith("rank 1 ")
    assert found.again


def test_an_exception_of_the_users_code_wins_over_a_peer_that_died_without_a_word() -> None:
    assert conclusion(ending(-signal.SIGABRT, 1), result(1, *USER)).reason == "rank 1: ValueError: no"


def test_all_results_measured_means_measured_however_the_processes_ended() -> None:
    assert conclusion(ending(-signal.SIGKILL, cause="lingering"), result(0)) == Conclusion(Outcome.measured, None)


def test_one_missing_result_means_not_measured() -> None:
    found = conclusion(ending(0, 0), result(0))
    assert found.outcome is Outcome.crashed
    assert found.reason == "rank 1 ended with exit code 0 and left no result"


def test_sigkill_with_evidence_of_the_kernel_is_out_of_memory() -> None:
    found = conclusion(ending(-signal.SIGKILL, oom_kills=1))
    assert found.outcome is Outcome.out_of_memory
    assert not found.again


def test_sigkill_without_evidence_is_a_crash_worth_another_attempt() -> None:
    found = conclusion(ending(-signal.SIGKILL))
    assert (found.outcome, found.reason, found.again) == (Outcome.crashed, "it was ended by SIGKILL", True)


def test_our_own_sigkill_is_never_taken_for_the_kernels() -> None:
    end = ending(-signal.SIGKILL, oom_kills=1, cause="time_limit", signalled=frozenset({0}), ignored_sigterm=True)
    assert conclusion(end).outcome is Outcome.timed_out


def test_a_data_worker_that_the_kernel_killed_is_out_of_memory() -> None:
    words = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."
    one = result(0, Outcome.crashed, "user_exception", words)
    assert conclusion(ending(1, oom_kills=1), one).outcome is Outcome.out_of_memory
    assert conclusion(ending(1), one).outcome is Outcome.crashed


def test_an_abort_for_lack_of_memory_in_native_code_is_out_of_memory() -> None:
    words = "terminate called after throwing an instance of 'std::bad_alloc'"
    assert conclusion(ending(-signal.SIGABRT), last_words=words).outcome is Outcome.out_of_memory
    assert conclusion(ending(-signal.SIGABRT), last_words="assertion failed").outcome is Outcome.crashed


def test_an_exception_of_the_users_code_is_not_worth_another_attempt_but_a_lost_peer_is() -> None:
    assert not conclusion(ending(1), result(0, *USER)).again
    assert conclusion(ending(1), result(0, *PEER)).again


def test_a_time_limit_does_not_hide_what_a_rank_had_reported_before() -> None:
    end = ending(-signal.SIGTERM, -signal.SIGTERM, cause="time_limit", signalled=frozenset({0, 1}))
    assert conclusion(end, result(1, *USER)).reason == "rank 1: ValueError: no"


def test_the_last_words_stand_in_the_reason() -> None:
    found = conclusion(ending(-signal.SIGSEGV), last_words="loading weights")
    assert found.reason == "it was ended by SIGSEGV (segmentation fault); last lines of its log: loading weights"


def test_a_lost_rank_explains_the_collective_errors_of_its_peers() -> None:
    lost = {1: "node 1 on gpu2, which did not say how it ended; srun ended with exit code 137"}
    found = conclusion(ending(1, None, lost=lost), result(0, *PEER))
    assert found.outcome is Outcome.crashed
    assert found.reason == f"rank 1 was lost: {lost[1]}"
    assert found.again


def test_ranks_that_were_killed_with_their_node_process_are_not_its_cause() -> None:
    lost = dict.fromkeys((0, 1), "node 0 on gpu1, which did not say how it ended; srun ended with exit code 137")
    killed: dict[str, Any] = {"cause": "rank_ended", "signalled": frozenset({0}), "ignored_sigterm": True, "lost": lost}
    assert conclusion(ending(None, -11, **killed)).reason == "rank 1 was ended by SIGSEGV (segmentation fault)"


@pytest.mark.parametrize("died", [None, -signal.SIGKILL])
def test_a_rank_that_srun_ended_for_the_death_of_another_does_not_explain_it(died: int | None) -> None:
    """Srun may be quicker than the collective error. Alone, or before such errors, the signal is the reason."""
    lost = {} if died else {1: "node 1 on gpu2, which did not say how it ended; srun ended with exit code 137"}
    found = conclusion(ending(-signal.SIGTERM, died, lost=lost))
    assert str(found.reason).startswith("rank 1 was ")
    assert conclusion(ending(-signal.SIGTERM, 1), result(1, *PEER)).reason == "rank 0 was ended by SIGTERM"


def test_a_rank_lost_for_lack_of_memory_is_out_of_memory_in_slurms_words() -> None:
    words = "slurmstepd-gpu2: error: StepId=4.1 exceeded memory limit (4158427136 > 2097152000), being killed"
    lost = {1: "node 1 on gpu2, which did not say how it ended; srun ended with exit code 137"}
    found = conclusion(ending(1, None, lost=lost), result(0, *PEER), last_words=f"step 7 | {words} | srun: Terminating")
    assert found.outcome is Outcome.out_of_memory
    assert words in str(found.reason)
