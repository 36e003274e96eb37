"""Write a run's record: merge its ranks' results and raw steps, and add what only the executor knows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelsweep.config.schema import CellConfig
from accelsweep.errors import DamagedFile
from accelsweep.executor.outcome import Conclusion
from accelsweep.files import sha256_file
from accelsweep.records.metrics import NOT_REACHED
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Doubt, Fingerprint, Frontier, Outcome, Record, now
from accelsweep.redaction import masked, without_secrets
from accelsweep.worker.run_spec import RankResult, RunSpec

_NO_STEPS = Doubt(
    code="no_steps",
    message="the rate was measured, but the time of each step could not be stored",
    remedy="read run.log; without the steps it cannot be checked whether the window was steady",
)


@dataclass(frozen=True)
class Provenance:
    """Under which conditions an attempt was made. `started_at` is UTC in ISO 8601."""

    launcher: str
    started_at: str
    fingerprint: Fingerprint
    git: Mapping[str, Any]


def read_results(spec: RunSpec, ranks: Iterable[int]) -> dict[int, RankResult]:
    """Return the results of those `ranks` whose file is intact."""
    results = {}
    for rank in sorted(ranks):
        try:
            results[rank] = RankResult.read(spec.rank_result(rank))
        except (DamagedFile, FileNotFoundError):
            continue
    return results


def results_after_window(
    spec: RunSpec, results: Mapping[int, RankResult], conclusion: Conclusion
) -> dict[int, RankResult] | None:
    """Return the results, as measured, of a run that failed after all ranks had closed their windows; else None.

    Metrics of later phases get the failure as their reason, with the place in the user's code. Divergence is an answer
    of its own, not a failure.
    """
    if conclusion.outcome in (Outcome.measured, Outcome.diverged):
        return None
    measured: dict[int, RankResult] = {}
    for rank in range(spec.world_size):
        result = results.get(rank)
        if result is None:
            try:
                result = RankResult.read(spec.rank_window(rank))
            except (DamagedFile, FileNotFoundError):
                return None
        if not result.rate_stands:
            return None
        measured[rank] = result
    place = next((result.place for result in measured.values() if result.error_kind == "user_exception"), None)
    where = f", in {place}" if place and place not in str(conclusion.reason) else ""
    reason = masked(f"after the window: {conclusion.reason}{where}")
    for rank, result in measured.items():
        metrics = {
            name: metric.model_copy(update={"reason": reason}) if metric.reason == NOT_REACHED else metric
            for name, metric in result.metrics.items()
        }
        changed = {"outcome": Outcome.measured, "reason": None, "error_kind": "none", "metrics": metrics}
        measured[rank] = result.model_copy(update=changed)
    return measured


def write_record(
    run_folder: RunFolder,
    spec: RunSpec,
    config: CellConfig,
    conclusion: Conclusion,
    results: Mapping[int, RankResult],
    provenance: Provenance,
    wall_seconds: float = 0.0,
    doubts: Iterable[Doubt] = (),
    frontier: Frontier | None = None,
) -> None:
    """Write the record of one attempt and make it the run's: metrics from rank 0, doubts of every rank and `doubts`.

    `config` is the setting's, as its block has it. `frontier` is the result of a search for the largest batch.
    """
    steps = run_folder.steps_file(spec.attempt)
    has_steps = merge_steps(spec, steps)
    first = results.get(0)
    effective = None if first is None else first.effective
    all_doubts = [*(doubt for result in results.values() for doubt in result.doubts), *doubts]
    if conclusion.outcome is Outcome.measured and not has_steps and frontier is None:
        all_doubts.append(_NO_STEPS)
    record = Record(
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
        started_at=provenance.started_at,
        finished_at=now(),
        wall_seconds=wall_seconds,
        effective=None if effective is None else effective.model_copy(update={"launcher": provenance.launcher}),
        metrics=first.metrics if first is not None else {},
        fingerprint=provenance.fingerprint,
        environment=first.environment if first is not None else {},
        git=dict(provenance.git),
        breakdown=first.breakdown if first is not None else None,
        traits=first.traits if first is not None else None,
        frontier=frontier,
        steps_sha256=sha256_file(steps) if has_steps else None,
        doubts=tuple({(doubt.code, doubt.message): doubt for doubt in all_doubts}.values()),
    )
    record.write(run_folder.record_file(spec.attempt))
    run_folder.promote(spec.attempt)
    for rank in range(spec.world_size):
        for path in (spec.rank_steps(rank), spec.rank_window(rank), spec.pulse(rank)):
            path.unlink(missing_ok=True)


def source_doubts(before: Fingerprint, after: Fingerprint) -> list[Doubt]:
    """Return the doubt that the user's sources were edited during a run."""
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
    """Write the steps of all ranks to `target`, ordered by rank; return whether there are any.

    Several files are merged in a forked child, because pyarrow leaves a thread behind, which would make forking unsafe.
    """
    parts = [path for rank in range(spec.world_size) if (path := spec.rank_steps(rank)).exists()]
    if len(parts) == 1:
        shutil.copyfile(parts[0], target)
    elif parts:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                import pyarrow
                import pyarrow.parquet

                tables = [pyarrow.parquet.read_table(part, use_threads=False) for part in parts]
                pyarrow.parquet.write_table(pyarrow.concat_tables(tables), target)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return status == 0
    return bool(parts)
