"""The one recorded outcome of a run, found from its processes' endings, with a reason that a person can act on.

Where ranks disagree the first cause wins, not its echoes. First come out of memory, diverged, unsupported, and an
exception in the user's code. Then come a rank that died without a message, and one that somebody asked to end
(SIGTERM). Collective errors follow, which the peers of all these see, and at last a rank that we ended because of its
peers.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accelsweep.core.planned.settings import Limits
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.engines.this_job import memory_lines
from accelsweep.rank.spec import PRECEDENCE, ErrorKind, RankResult
from accelsweep.supervise.processes.watching import Ending

_ABORTED_FOR_MEMORY = re.compile(r"std::bad_alloc|out of memory|can't allocate memory|not enough memory", re.IGNORECASE)
_WORKER_KILLED = "killed by signal: Killed"  # torch's DataLoader prints this for a worker that got SIGKILL
_DIED = PRECEDENCE.index("collective") - 0.5  # a peer's collective error is the echo of such a death
_ASKED = _DIED + 0.25  # by SIGTERM, which srun sends to the other ranks once one of them has died
_WORDS = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "abort",
    signal.SIGBUS: "bus error",
    signal.SIGFPE: "arithmetic error",
    signal.SIGILL: "illegal instruction",
}


@dataclass(frozen=True)
class Conclusion:
    """A run's outcome and reason. `again` says whether another attempt may end differently."""

    outcome: Outcome
    reason: str | None
    again: bool = False


@dataclass(frozen=True)
class _Candidate:
    """One rank's ending as an explanation of the run's; the smallest `order` explains it."""

    order: float
    rank: int
    conclusion: Conclusion


def classify(
    ending: Ending, results: Mapping[int, RankResult], last_words: str, limits: Limits, stood: str = ""
) -> Conclusion:
    """Return the run's conclusion.

    `results` are those of the ranks in `ending.reported` that could be read; `last_words` are the log's last lines, and
    `stood` says what the ranks did when time was up.
    An interrupted run has no conclusion: ask only for the others.
    """
    ranks = range(len(ending.statuses))
    if all(rank in results and results[rank].outcome is Outcome.measured for rank in ranks):
        return Conclusion(Outcome.measured, None)
    candidates = [*_reported(ending, results), *_silent(ending, results, last_words)]
    explained = any(candidate.order < _DIED for candidate in candidates)
    if not explained and ending.cause == "time_limit":
        return Conclusion(Outcome.timed_out, _time_limit(ending, limits, last_words, stood))
    if not explained and ending.cause == "silence":
        return Conclusion(Outcome.timed_out, _silence(ending, limits, stood))
    return min(candidates, key=lambda candidate: (candidate.order, candidate.rank)).conclusion


def _time_limit(ending: Ending, limits: Limits, last_words: str, stood: str) -> str:
    longer = f"it ran longer than {limits.run_seconds:g} s (limits.run_seconds)"
    return f"{longer}{_stubborn(ending)}{f'; {stood}' if stood else ''}{_quoted(last_words)}"


def _silence(ending: Ending, limits: Limits, stood: str) -> str:
    ranks = ", ".join(map(str, sorted(ending.silent)))
    some = len(ending.silent) < len(ending.statuses)
    whose = f" of rank{'s' if len(ending.silent) > 1 else ''} {ranks}" if some else ""
    stacks = "the end of run.log says where it hung" if ending.stacks else "no process could say where it hung"
    stacks = f"{stood} (all stacks are at the end of run.log)" if stood else stacks
    remedy = "raise limits.silence_seconds if one step may take so long"
    return f"no step{whose} for {limits.silence_seconds:g} s{_stubborn(ending)}; {stacks}; {remedy}"


def _stubborn(ending: Ending) -> str:
    return " and ignored SIGTERM, so it was killed" if ending.ignored_sigterm else ""


def _reported(ending: Ending, results: Mapping[int, RankResult]) -> Iterator[_Candidate]:
    for rank, result in results.items():
        if result.outcome is Outcome.measured:
            continue
        kind, outcome = result.error_kind, result.outcome
        if ending.oom_kills > 0 and _WORKER_KILLED in str(result.reason):
            kind, outcome = "out_of_memory", Outcome.out_of_memory
        where = f"rank {rank}: " if len(ending.statuses) > 1 else ""
        conclusion = Conclusion(outcome, f"{where}{result.reason}", again=kind in ("collective", "none"))
        yield _Candidate(PRECEDENCE.index(kind), rank, conclusion)


def _silent(ending: Ending, results: Mapping[int, RankResult], last_words: str) -> Iterator[_Candidate]:
    for rank, status in enumerate(ending.statuses):
        if rank in results:
            continue
        subject = f"rank {rank}" if len(ending.statuses) > 1 else "it"
        if status is None and not (rank in ending.signalled and ending.ignored_sigterm):
            yield _lost(subject, rank, ending, last_words)
        elif rank in ending.signalled:
            reason = f"{subject} gave no result while a peer had ended{_quoted(last_words)}"
            yield _Candidate(len(PRECEDENCE) + 1, rank, Conclusion(Outcome.crashed, reason, again=True))
        else:
            kind, conclusion = _died(subject, status, ending, last_words)
            silently = _ASKED if status == -signal.SIGTERM else _DIED
            yield _Candidate(PRECEDENCE.index(kind) if kind else silently, rank, conclusion)


def _lost(subject: str, rank: int, ending: Ending, last_words: str) -> _Candidate:
    if found := memory_lines(last_words.split(" | ")):
        reason = f"{subject} was lost for lack of memory: {found[0].text} ({found[0].key})"
        return _Candidate(PRECEDENCE.index("out_of_memory"), rank, Conclusion(Outcome.out_of_memory, reason))
    reason = f"{subject} was lost: {ending.lost[rank]}{_quoted(last_words)}"
    return _Candidate(_DIED, rank, Conclusion(Outcome.crashed, reason, again=True))


def _died(subject: str, status: int | None, ending: Ending, last_words: str) -> tuple[ErrorKind | None, Conclusion]:
    if status == -signal.SIGKILL and ending.oom_kills > 0:
        reason = f"{subject} was killed by the operating system for lack of memory (its count of such kills rose)"
        return "out_of_memory", Conclusion(Outcome.out_of_memory, reason)
    if status == -signal.SIGABRT and (found := _ABORTED_FOR_MEMORY.search(last_words)):
        return "out_of_memory", Conclusion(Outcome.out_of_memory, f"{subject} aborted: {found[0]}")
    return None, Conclusion(Outcome.crashed, f"{subject} {_how(status)}{_quoted(last_words)}", again=True)


def _how(status: int | None) -> str:
    assert status is not None, "a lost rank has a reason of its own"
    if status >= 0:
        return f"ended with exit code {status} and left no result"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"was ended by signal {-status}"
    return f"was ended by {number.name}" + (f" ({_WORDS[number]})" if number in _WORDS else "")


def _quoted(last_words: str) -> str:
    return f"; last lines of its log: {last_words}" if last_words else ""
