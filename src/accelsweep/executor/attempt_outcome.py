"""The outcome of a run, derived from how its processes ended, with an actionable reason.

Ranks report before teardown. The root cause is the first of the following causes that applies to any rank: out of
memory, divergence, unsupported, an exception in user code, a death without a report, a failed collective. Causes
further down this list are usually consequences of an earlier one.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.sweep_options import Limits
from accelsweep.executor.run_log import log_tail
from accelsweep.executor.run_watchdog import Ending
from accelsweep.executor.stack_traces import describe_hang
from accelsweep.files import tail_lines
from accelsweep.heartbeat import read_progress
from accelsweep.records.layout import LOG_FILE
from accelsweep.results import PRECEDENCE, Doubt, Outcome, RankResult
from accelsweep.schedulers.select import MemoryLine, memory_lines
from accelsweep.worker.run_spec import RunSpec

_ABORTED_FOR_MEMORY = re.compile(r"std::bad_alloc|out of memory|can't allocate memory|not enough memory", re.IGNORECASE)

_WORKER_KILLED = "killed by signal: Killed"  # torch's DataLoader prints this for a worker that received SIGKILL

_DIED = PRECEDENCE.index("collective") - 0.5  # the death of a rank causes collective errors in its peers

_TERMINATED = _DIED + 0.25  # by SIGTERM, which srun sends to the other ranks once one of them has died

_SIGNAL_NAMES = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "abort",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
}

_JOB_LOG_BYTES = 100_000


@dataclass(frozen=True)
class Conclusion:
    """A run's outcome and reason. `retryable` means that another attempt may end differently.

    `disturbance` is what disturbed the window of a measured run (`Record.disturbance`).
    """

    outcome: Outcome
    reason: str | None
    retryable: bool = False
    disturbance: str | None = None


@dataclass(frozen=True)
class _Candidate:
    """How one rank ended, as a possible cause of the run's outcome; the candidate with the smallest `order` wins."""

    order: float
    rank: int
    conclusion: Conclusion


def conclude(spec: RunSpec, ending: Ending, results: Mapping[int, RankResult], limits: Limits) -> Conclusion | None:
    """Return the conclusion on a run, taking its log into account; None if interrupted before all ranks reported.

    `results` contains the readable results of the ranks in `ending.reported`.
    """
    if ending.cause == "interrupted" and len(results) < spec.world_size:
        return None
    log = Path(spec.attempt_folder) / LOG_FILE
    hung = describe_hang(log, read_progress(spec.progress()) or 0) if ending.stacks else ""
    return classify(ending, results, log_tail(log), limits, hung)


def classify(
    ending: Ending, results: Mapping[int, RankResult], tail: str, limits: Limits, hung: str = ""
) -> Conclusion:
    """Return the conclusion on a run that was not interrupted; `hung` describes what its ranks were doing."""
    ranks = range(len(ending.exit_codes))
    if all(rank in results and results[rank].outcome is Outcome.measured for rank in ranks):
        return Conclusion(Outcome.measured, None)
    candidates = [*_reported(ending, results), *_unreported(ending, results, tail)]
    explained = any(candidate.order < _DIED for candidate in candidates)
    ignored = " and ignored SIGTERM, so it was killed" if ending.ignored_sigterm else ""
    if not explained and ending.cause == "time_limit":
        reason = f"it ran longer than {limits.run_seconds:g} s (limits.run_seconds){ignored}"
        return Conclusion(Outcome.timed_out, f"{reason}{f'; {hung}' if hung else ''}{_quoted(tail)}")
    if not explained and ending.cause == "stalled":
        stacks = "the end of run.log shows where it hung" if ending.stacks else "no process could report where it hung"
        stacks = f"{hung} (all stacks are at the end of run.log)" if hung else stacks
        reason = f"no step{_stalled_ranks(ending)} for {limits.silence_seconds:g} s{ignored}; {stacks}"
        return Conclusion(Outcome.timed_out, f"{reason}; raise limits.silence_seconds if one step may take that long")
    return min(candidates, key=lambda candidate: (candidate.order, candidate.rank)).conclusion


def _stalled_ranks(ending: Ending) -> str:
    if len(ending.stalled) == len(ending.exit_codes):
        return ""
    return f" of rank{'s' if len(ending.stalled) > 1 else ''} {', '.join(map(str, sorted(ending.stalled)))}"


def _reported(ending: Ending, results: Mapping[int, RankResult]) -> Iterator[_Candidate]:
    for rank, result in results.items():
        if result.outcome is Outcome.measured:
            continue
        kind, outcome = result.error_kind, result.outcome
        if ending.oom_kills > 0 and _WORKER_KILLED in str(result.reason):
            kind, outcome = "out_of_memory", Outcome.out_of_memory
        where = f"rank {rank}: " if len(ending.exit_codes) > 1 else ""
        conclusion = Conclusion(outcome, f"{where}{result.reason}", retryable=kind in ("collective", "none"))
        yield _Candidate(PRECEDENCE.index(kind), rank, conclusion)


def _unreported(ending: Ending, results: Mapping[int, RankResult], tail: str) -> Iterator[_Candidate]:
    for rank, code in enumerate(ending.exit_codes):
        if rank in results:
            continue
        subject = f"rank {rank}" if len(ending.exit_codes) > 1 else "it"
        if code is None and not (rank in ending.signalled and ending.ignored_sigterm):
            yield _lost(subject, rank, ending, tail)
        elif rank in ending.signalled:
            reason = f"{subject} was stopped without a result after a peer ended{_quoted(tail)}"
            yield _Candidate(len(PRECEDENCE) + 1, rank, Conclusion(Outcome.crashed, reason, retryable=True))
        else:
            assert code is not None, "only a lost rank has no exit code"
            yield _died(subject, rank, code, ending, tail)


def _lost(subject: str, rank: int, ending: Ending, tail: str) -> _Candidate:
    if lines := memory_lines(tail.split(" | ")):
        reason = f"{subject} was lost because it ran out of memory: {lines[0].text} ({lines[0].key})"
        return _Candidate(PRECEDENCE.index("out_of_memory"), rank, Conclusion(Outcome.out_of_memory, reason))
    reason = f"{subject} was lost: {ending.lost[rank]}{_quoted(tail)}"
    return _Candidate(_DIED, rank, Conclusion(Outcome.crashed, reason, retryable=True))


def _died(subject: str, rank: int, code: int, ending: Ending, tail: str) -> _Candidate:
    memory = None
    if code == -signal.SIGKILL and ending.oom_kills > 0:
        memory = "was killed by the operating system because memory ran out (the out-of-memory kill count increased)"
    elif code == -signal.SIGABRT and (match := _ABORTED_FOR_MEMORY.search(tail)):
        memory = f"aborted: {match[0]}"
    if memory is not None:
        conclusion = Conclusion(Outcome.out_of_memory, f"{subject} {memory}")
        return _Candidate(PRECEDENCE.index("out_of_memory"), rank, conclusion)
    if code >= 0:
        how = f"ended with exit code {code} and left no result"
    elif -code in {*signal.Signals}:
        number = signal.Signals(-code)
        how = f"was ended by {number.name}" + (f" ({_SIGNAL_NAMES[number]})" if number in _SIGNAL_NAMES else "")
    else:
        how = f"was ended by signal {-code}"
    conclusion = Conclusion(Outcome.crashed, f"{subject} {how}{_quoted(tail)}", retryable=True)
    return _Candidate(_TERMINATED if code == -signal.SIGTERM else _DIED, rank, conclusion)


def _quoted(tail: str) -> str:
    return f"; last lines of its log: {tail}" if tail else ""


def memory_failure(job_logs: Sequence[str | None]) -> MemoryLine | None:
    """Return the scheduler's out-of-memory line from the logs of jobs that a run brought down; None if there is none.

    One line about a whole job is enough. A line about individual processes may concern a different run, so there must
    be several jobs, each with such a line in its log.
    """
    lines_by_job = [
        memory_lines(tail_lines(Path(log), max_bytes=_JOB_LOG_BYTES) if log else ()) for log in dict.fromkeys(job_logs)
    ]
    whole_job = next((line for lines in lines_by_job for line in lines if line.whole_job), None)
    if whole_job is None and len(lines_by_job) > 1 and all(lines_by_job):
        return lines_by_job[0][0]
    return whole_job


def ending_doubts(ending: Ending, conclusion: Conclusion) -> list[Doubt]:
    """Return the doubts about a measured run whose processes did not exit cleanly."""
    clean = all(code == 0 for code in ending.exit_codes)
    if conclusion.outcome is not Outcome.measured or (clean and not ending.signalled):
        return []
    codes = ", ".join("lost" if code is None else str(code) for code in ending.exit_codes)
    return [
        Doubt(
            code="bad_teardown",
            message=f"all results were on disk, but the processes did not exit cleanly (exit codes by rank: {codes})",
            remedy="read run.log; the results were measured before that, but the cause may also affect other runs",
        )
    ]
