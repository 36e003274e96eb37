"""One cell's finding: its runs, comparison with the baseline, quality and costs, put together and rounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from accelsweep.analyse.collected.runs import CellRuns, RunRow
from accelsweep.analyse.findings.against_baseline import Comparison, over, own_rate
from accelsweep.analyse.findings.cells.again import command_again, trainer_call
from accelsweep.analyse.findings.cells.bottleneck import bottleneck_of
from accelsweep.analyse.findings.cells.cost import time_to_target
from accelsweep.analyse.findings.cells.memory import memory_share
from accelsweep.analyse.findings.cells.summary import summaries
from accelsweep.analyse.findings.doubts import cell_doubts
from accelsweep.analyse.findings.quality import CellQuality
from accelsweep.analyse.statistics.intervals import Family, significant
from accelsweep.core.findings.measured import CellFinding, RunPoint
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.recorded.hardware import HardwareKind
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt


def counted(runs: Iterable[RunRow]) -> dict[Outcome, int]:
    """Return the number of runs for each outcome, in the order of the outcomes' definition."""
    counts = Counter(run.outcome for run in runs)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


@dataclass(frozen=True)
class Context:
    """The facts beside its own runs that the finding of a cell depends on."""

    hardware: Mapping[HardwareKind, str]
    family: Family
    outlying: Collection[str]
    overlapping: Collection[str]
    manifest: Manifest


def finding_of(
    one: CellRuns,
    comparison: Comparison,
    priced: dict[str, Estimate],
    quality: CellQuality,
    levels: Doubt | None,
    context: Context,
) -> CellFinding:
    """Return the finding of `one`, given how it compares, its costs, its quality, and a doubt about its levels."""
    own = cell_doubts(one, context.outlying, context.overlapping)
    metrics = summaries(one)
    return CellFinding(
        cell=one.cell,
        label=one.label,
        axes=one.planned.axes,
        hardware=context.hardware.get(one.hardware),
        planned=sum(run.run is not None for run in one.runs),
        measured=len(one.measured),
        outcomes=counted(one.runs),
        reasons=tuple(dict.fromkeys(run.reason for run in one.runs if run.reason is not None)),
        rate=own_rate(one, context.family.confidence),
        speedup=comparison.speedup,
        verdict=comparison.verdict,
        verdict_reason=comparison.reason,
        quality=quality.mean,
        quality_verdict=quality.verdict,
        metrics=metrics,
        memory_share=memory_share(metrics, one.effective, context.manifest.site),
        effective=one.effective,
        doubts=(*comparison.doubts, *own, *([levels] if levels is not None else [])),
        runs=tuple(_point(run, one.rate(run), comparison.partner) for run in one.runs if run.run is not None),
        quality_difference=quality.difference,
        costs=priced,
        bottleneck=bottleneck_of(one),
        time_to_target=time_to_target(one, Family(1, context.family.confidence)),
        again=command_again(context.manifest, one.planned),
        trainer=trainer_call(one.config) if one.config else None,
    )


def _point(run: RunRow, rate: float | None, partner: CellRuns | None) -> RunPoint:
    ratio = over(partner, rate, run.block) if partner is not None and rate else None
    quality = run.value("quality")
    return RunPoint(
        run=run.run or "",
        repeat=run.repeat or 0,
        block=run.block or "",
        position=run.position,
        outcome=run.outcome,
        reason=run.reason,
        rate=None if rate is None else significant(rate),
        quality=None if quality is None else significant(quality),
        started_at=run.started_at,
        doubts=run.doubts,
        ratio=None if ratio is None else significant(ratio),
    )
