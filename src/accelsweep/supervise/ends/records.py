"""One record of the ranks' files: results merged, steps in one file, the supervisor's own facts added."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelsweep.base.documents import sha256_file
from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import masked, without_secrets
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.recorded.frontier import Frontier
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt, Effective, Fingerprint, Record, now
from accelsweep.rank.spec import RankResult, RunSpec
from accelsweep.supervise.ends.outcomes import Conclusion
from accelsweep.supervise.processes.watching import Ending


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
