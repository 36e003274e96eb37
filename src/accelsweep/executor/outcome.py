"""One record of the ranks' files: results merged, steps in one file, the supervisor's own facts added."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from accelsweep.config.schema import CellConfig
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.file_system import free_inodes
from accelsweep.errors import REFUSALS, AccelsweepError, DamagedFile
from accelsweep.executor.monitor import Ending
from accelsweep.json_documents import last_lines, sha256_file
from accelsweep.records.layout import SWEEPS_FOLDER
from accelsweep.records.metrics import NOT_REACHED
from accelsweep.records.run_record import Doubt, Effective, Fingerprint, Frontier, Outcome, Record, now
from accelsweep.records.stop_reasons import Why
from accelsweep.redaction import masked, without_secrets
from accelsweep.schedulers.select import MemoryLine, memory_lines, this_job
from accelsweep.worker.run_spec import PRECEDENCE, ErrorKind, RankResult, RunSpec

# The one recorded outcome of a run, found from its processes' endings, with a reason that a person can act on.

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


@dataclass(frozen=True)
class Circumstances:
    """The supervisor's facts about an attempt, beside its ranks' results. Times are UTC in ISO 8601."""

    launcher: str
    started_at: str
    wall_seconds: float
    fingerprint: Fingerprint
    git: Mapping[str, Any]


def read_results(spec: RunSpec, ranks: Iterable[int]) -> dict[int, RankResult]:
    """Return the results of those `ranks` whose file is whole; a damaged one counts as none."""
    results = {}
    for rank in sorted(ranks):
        try:
            results[rank] = RankResult.read(spec.rank_result(rank))
        except (DamagedFile, FileNotFoundError):
            continue
    return results


def kept_rates(spec: RunSpec, results: Mapping[int, RankResult], why: str | None) -> dict[int, RankResult] | None:
    """Return the results of a run whose ranks all had closed their windows before it failed; None for any other run.

    What was not measured yet has the reason `why`, with the place in the user's code.
    """
    found: dict[int, RankResult] = {}
    for rank in range(spec.world_size):
        result = results.get(rank)
        if result is None:
            try:
                result = RankResult.read(spec.rank_window(rank))
            except (DamagedFile, FileNotFoundError):
                return None
        if not result.rate_stands:
            return None
        found[rank] = result
    place = next((result.place for result in found.values() if result.error_kind == "user_exception"), None)
    reason = masked(f"after the window: {why}" + (f", in {place}" if place and place not in str(why) else ""))
    return {rank: _measured(result, reason) for rank, result in found.items()}


def _measured(result: RankResult, reason: str) -> RankResult:
    """Return `result` as that of a measured rank, whose metrics of later phases are absent for `reason`."""
    metrics = {
        name: metric.model_copy(update={"reason": reason}) if metric.reason == NOT_REACHED else metric
        for name, metric in result.metrics.items()
    }
    ended: dict[str, Any] = {"outcome": Outcome.measured, "reason": None, "error_kind": "none", "metrics": metrics}
    return result.model_copy(update=ended)


def make_record(
    spec: RunSpec,
    config: CellConfig,
    conclusion: Conclusion,
    results: Mapping[int, RankResult],
    known: Circumstances,
    doubts: Iterable[Doubt] = (),
    steps: Path | None = None,
    frontier: Frontier | None = None,
) -> Record:
    """Return the record of one attempt: rank 0 speaks for the run, doubts come from every rank and from `doubts`.

    `config` is the cell's, as its block has it. `steps` is the file of raw steps that the record is to seal, None if
    there is none. `frontier` is what a search for the largest batch found.
    """
    first = results.get(0)
    return Record(
        sweep=spec.sweep,
        block=spec.block,
        run=spec.run.name,
        cell=spec.run.cell,
        repeat=spec.run.repeat,
        seed=spec.run.seed,
        position=spec.position,
        attempt=spec.attempt,
        axes=without_secrets(spec.axes),
        config=without_secrets(config.raw),
        outcome=conclusion.outcome,
        reason=None if conclusion.reason is None else masked(conclusion.reason),
        started_at=known.started_at,
        finished_at=now(),
        wall_seconds=known.wall_seconds,
        effective=_effective(first, known.launcher),
        metrics=first.metrics if first is not None else {},
        fingerprint=known.fingerprint,
        environment=first.environment if first is not None else {},
        git=dict(known.git),
        breakdown=first.breakdown if first is not None else None,
        traits=first.traits if first is not None else None,
        frontier=frontier,
        steps_sha256=None if steps is None else sha256_file(steps),
        doubts=_distinct([*(doubt for result in results.values() for doubt in result.doubts), *doubts]),
    )


def _effective(result: RankResult | None, launcher: str) -> Effective | None:
    if result is None or result.effective is None:
        return None
    return result.effective.model_copy(update={"launcher": launcher})


def _distinct(doubts: Iterable[Doubt]) -> tuple[Doubt, ...]:
    return tuple({(doubt.code, doubt.message): doubt for doubt in doubts}.values())


def ending_doubts(ending: Ending, conclusion: Conclusion) -> list[Doubt]:
    """Return the doubts that follow from the way in which a measured run's processes ended."""
    ended_well = all(status == 0 for status in ending.statuses)
    if conclusion.outcome is not Outcome.measured or (ended_well and not ending.signalled):
        return []
    how = ", ".join("lost" if status is None else str(status) for status in ending.statuses)
    return [
        Doubt(
            code="bad_teardown",
            message=f"all results were on disk, but the processes did not end well (exit codes by rank: {how})",
            remedy="read run.log; the numbers were taken before, but the cause may disturb other runs too",
        )
    ]


def source_doubts(before: Fingerprint, after: Fingerprint) -> list[Doubt]:
    """Return the doubt that sources were edited between the start and the end of a run, which began under `before`."""
    names = sorted(before.sources.keys() | after.sources.keys())
    changed = [name for name in names if before.sources.get(name) != after.sources.get(name)]
    if not changed:
        return []
    return [
        Doubt(
            code="sources_changed",
            message=f"{', '.join(changed)} changed while the run was going on; the run may have used either state",
            remedy="do not edit sources while a sweep runs; to measure it again, remove its folder and repeat the "
            "command",
        )
    ]


def merge_steps(spec: RunSpec, target: Path) -> bool:
    """Write the steps of all ranks to `target`, in order of rank; return whether there are any.

    Several files are joined in a forked child, because pyarrow leaves a thread behind that a supervisor must not have.
    """
    parts = [path for rank in range(spec.world_size) if (path := spec.rank_steps(rank)).exists()]
    if len(parts) == 1:
        shutil.copyfile(parts[0], target)
    elif parts:
        child = os.fork()
        if child == 0:
            _join_and_exit(parts, target)
        _, status = os.waitpid(child, 0)
        return status == 0
    return bool(parts)


def _join_and_exit(parts: list[Path], target: Path) -> None:
    code = 1
    try:
        import pyarrow
        import pyarrow.parquet

        tables = [pyarrow.parquet.read_table(part, use_threads=False) for part in parts]
        pyarrow.parquet.write_table(pyarrow.concat_tables(tables), target)
        code = 0
    finally:
        os._exit(code)


# Disk space for the files of a run, checked before it begins, and plain words for a disk that refuses.

LONGEST_TMPDIR = 70
"""A socket's path has 107 characters at most; multiprocessing and torch add up to 36."""


class NoRoom(AccelsweepError):
    """The sweep's disk is too full to go on."""


def check_room(folder: Path, limits: Limits) -> None:
    """Raise NoRoom if the file system of a sweep's `folder` has less room for bytes or files than `limits` ask for."""
    place = f"{SWEEPS_FOLDER}/{folder.name}"
    free = shutil.disk_usage(folder).free
    if free < limits.free_disk_bytes:
        megabytes = {"free": free // 1_000_000, "asked": -(-limits.free_disk_bytes // 1_000_000)}
        raise NoRoom(Why.no_room.format(folder=place, **megabytes))
    files = free_inodes(folder)
    if files is not None and files < limits.free_disk_inodes:
        raise NoRoom(Why.no_inodes.format(folder=place, free=files, asked=limits.free_disk_inodes))


def check_temporary_folder() -> None:
    """Raise AccelsweepError where this process's temporary folder is too long for the sockets that a run makes there.

    Loader workers would wait for a socket that cannot be made until the run's time is up.
    """
    if len(found := tempfile.gettempdir()) > LONGEST_TMPDIR:
        raise AccelsweepError(f"{too_long(found)}. Set TMPDIR (on a cluster site.slurm.scratch) to a shorter path")


def too_long(folder: str) -> str:
    """Return the words for a temporary folder whose path is too long."""
    where = f"the temporary folder {folder[:40]}... on {socket.gethostname()}"
    return f"{where} has a path of {len(folder)} characters, and sockets leave room for {LONGEST_TMPDIR} (TMPDIR)"


def refusal(error: OSError, folder: Path) -> str | None:
    """Return the user's message where the system refused to read or write, or None for an error of another sort."""
    if error.errno not in REFUSALS:
        return None
    return Why.disk_refused.format(where=error.filename or folder, error=error.strerror)


# The log of a supervisor's job, and its lines about the end of an earlier one.

_MOST_BYTES = 100_000


@cache
def job_log() -> str | None:
    """Return the path of the log of this process's job; None outside a job, and where its engine does not say it."""
    job = this_job()
    return job.log() if job else None


def lack_of_memory(logs: Sequence[str | None]) -> MemoryLine | None:
    """Return the engine's line for a lack of memory as the cause, where a run took the jobs with these logs down.

    The line is about the end of a whole job. If several jobs all have such lines, one about single processes counts
    too. None where there is no such line.
    """
    told = [memory_lines(last_lines(Path(log), most_bytes=_MOST_BYTES) if log else ()) for log in dict.fromkeys(logs)]
    ended = next((line for lines in told for line in lines if line.whole_job), None)
    if ended is None and len(told) > 1 and all(told):
        return told[0][0]
    return ended
