"""From the runs to the findings: every number of the report, computed here and rounded once.

A pure function: the same records give the same findings to the last digit, whatever the order of the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from accelsweep.analyse.advice.minutes import block_seconds
from accelsweep.analyse.advice.recommend import recommend
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import command
from accelsweep.analyse.findings.again import command_again, trainer_call
from accelsweep.analyse.findings.against_baseline import (
    Comparison,
    Rules,
    against_baseline,
    family_size,
    over,
    own_rate,
)
from accelsweep.analyse.findings.batch import batch_curves
from accelsweep.analyse.findings.bottleneck import bottleneck_of
from accelsweep.analyse.findings.claims import judge_claims
from accelsweep.analyse.findings.cost import costs, gaps, note, time_to_target, used
from accelsweep.analyse.findings.doubts import cell_doubts, outlying_runs, overlapping_runs, sweep_doubts
from accelsweep.analyse.findings.ladder import ladders
from accelsweep.analyse.findings.memory import memory_share
from accelsweep.analyse.findings.noise_doubts import two_levels
from accelsweep.analyse.findings.pareto import candidates, front, objectives
from accelsweep.analyse.findings.quality import Asked, CellQuality, QualityMeasure, measure_of, qualities
from accelsweep.analyse.findings.rivals import not_told_apart
from accelsweep.analyse.findings.scaling import scaling
from accelsweep.analyse.hardware import HardwareKind, names_of
from accelsweep.analyse.origin import environment, hardware_of, origin_of, records_digest
from accelsweep.analyse.runs import CellRuns, RunRow, group, in_order, rate_metric_of
from accelsweep.analyse.statistics.intervals import Family, pooled_noise, significant
from accelsweep.analyse.statistics.repeats import planned_repeats
from accelsweep.analyse.summary import summaries
from accelsweep.core.findings import CellFinding, ClaimFinding, Estimate, Findings, Recommendation, RunPoint
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.prices import PriceUsed
from accelsweep.core.record import Doubt
from accelsweep.plan.blocks.power import smallest_visible_effect


def analyse(runs: Iterable[RunRow], manifest: Manifest) -> Findings:
    """Return the findings of the sweep that `manifest` plans from the runs that `collect` found."""
    rows = in_order(runs)
    groups = group(manifest, rows)
    rules = _rules(manifest, groups)
    names = names_of(one.hardware for one in groups)
    measure = measure_of(groups, manifest.settings.analysis.quality_margin)
    baselines = [one for one in groups if one.cell == manifest.baseline]
    comparisons = against_baseline(groups, baselines, rules)
    priced, money = _costs(groups, manifest, Family(1, rules.family.confidence))
    context = _Context(names, rules.family, outlying_runs(groups), overlapping_runs(rows), manifest)
    asked = [Asked(one, found.partner, found.verdict) for one, found in zip(groups, comparisons, strict=True)]
    good, levels = qualities(asked, rules.family, measure), two_levels(groups)
    cells = tuple(_finding(*parts, context) for parts in zip(groups, comparisons, priced, good, levels, strict=True))
    weighed = _weighed(manifest, groups, comparisons, cells, rules, measure, names)
    analysis = manifest.settings.analysis
    return Findings(
        sweep=manifest.sweep,
        revision=manifest.revision,
        experiment=manifest.experiment,
        overrides=manifest.overrides,
        command=command(manifest),
        axes=manifest.axes,
        baseline=manifest.baseline,
        threshold=analysis.threshold,
        confidence=analysis.confidence,
        planned_runs=len(manifest.wanted_runs()),
        excluded=tuple(one.model_dump(mode="json") for one in manifest.excluded),
        cells=cells,
        repeats=weighed.repeats,
        doubts=tuple(sweep_doubts(groups, manifest.baseline, weighed.repeats)),
        family=rules.family.size,
        quality_metric=measure.metric,
        quality_better=measure.better,
        smallest_visible_effect=weighed.visible,
        pareto=weighed.pareto,
        pareto_objectives=weighed.objectives,
        recommendation=weighed.recommendation,
        outcomes=_counted(rows),
        rate_metric=rate_metric_of(manifest, rows),
        rate_unit=groups[0].rate_unit if groups else "",
        hardware=hardware_of(names),
        refusals=tuple(dict.fromkeys(one.refusal for one in comparisons if one.refusal is not None)),
        scaling=scaling(groups, rules),
        environment=environment(manifest, rows),
        records_sha256=records_digest(rows),
        batch_curves=batch_curves(groups, names),
        costs_note=money.note,
        cost_gaps=money.gaps,
        prices=money.prices,
        claims=_claims(manifest, groups),
        ladder=ladders(groups, manifest.settings.report.ladder, rules, names),
        origin=origin_of(rows),
    )


def _rules(manifest: Manifest, groups: Sequence[CellRuns]) -> Rules:
    analysis = manifest.settings.analysis
    family = Family(family_size(groups, manifest.baseline), analysis.confidence)
    return Rules(family, analysis.threshold, manifest.axes, analysis.across)


@dataclass(frozen=True)
class _Weighed:
    """The results of weighing the cells against each other. `visible` is the smallest effect that can be seen."""

    repeats: int
    visible: float | None
    pareto: tuple[str, ...]
    objectives: tuple[str, ...]
    recommendation: Recommendation


def _weighed(
    manifest: Manifest,
    groups: Sequence[CellRuns],
    comparisons: Sequence[Comparison],
    cells: tuple[CellFinding, ...],
    rules: Rules,
    measure: QualityMeasure,
    names: Mapping[HardwareKind, str],
) -> _Weighed:
    """Weigh the cells against each other: repeats, noise, Pareto front, recommendation."""
    noise, repeats = pooled_noise(_pairs(groups, comparisons)), planned_repeats(cells, manifest)
    chosen = candidates(cells)
    goals, seconds = objectives(chosen, measure, rules.threshold), block_seconds(groups, manifest)
    pareto = tuple(chosen[index].cell for index in front(goals, len(chosen)))
    situations = {
        hardware: Situation(
            manifest, part, rules, measure, noise, pareto, partial(_rivals, groups, cells, rules), seconds
        )
        for hardware, part in _by_baseline(comparisons, cells, names).items()
    }
    return _Weighed(repeats, _visible(repeats, noise, rules), pareto, tuple(goals), recommend(situations))


def _rivals(
    groups: Sequence[CellRuns], cells: Sequence[CellFinding], rules: Rules, best: CellFinding
) -> list[CellFinding]:
    """Return the findings of the cells that cannot be told apart from `best`, one of `cells`."""
    found = {id(one): cell for one, cell in zip(groups, cells, strict=True)}
    chosen = next(one for one, cell in zip(groups, cells, strict=True) if cell is best)
    return [found[id(one)] for one in not_told_apart(chosen, groups, rules)]


def _pairs(
    groups: Sequence[CellRuns], comparisons: Sequence[Comparison]
) -> Iterator[tuple[Mapping[str, float], Mapping[str, float]]]:
    """Yield the log rates of each cell and of its baseline; a baseline is left out, for it equals itself."""
    for one, comparison in zip(groups, comparisons, strict=True):
        if comparison.partner is not None and comparison.partner is not one:
            yield one.log_rates, comparison.partner.log_rates


def _by_baseline(
    comparisons: Sequence[Comparison], cells: tuple[CellFinding, ...], names: Mapping[HardwareKind, str]
) -> dict[str, tuple[CellFinding, ...]]:
    """Return the cells by the hardware of their baseline; all of them in one group where there is one baseline."""
    partners = [one.partner for one in comparisons]
    kinds = [names.get(one.hardware) if one else None for one in partners]
    several = sorted({kind for kind in kinds if kind is not None})
    if len(several) < 2:
        return {"": cells}
    return {kind: tuple(cell for cell, own in zip(cells, kinds, strict=True) if own == kind) for kind in several}


def _counted(runs: Iterable[RunRow]) -> dict[Outcome, int]:
    """Return the number of runs for each outcome, in the order of the outcomes' definition."""
    counts = Counter(run.outcome for run in runs)
    return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}


@dataclass(frozen=True)
class _Context:
    """The facts beside its own runs that the finding of a cell depends on."""

    hardware: Mapping[HardwareKind, str]
    family: Family
    outlying: Collection[str]
    overlapping: Collection[str]
    manifest: Manifest


def _finding(
    one: CellRuns,
    comparison: Comparison,
    priced: dict[str, Estimate],
    quality: CellQuality,
    levels: Doubt | None,
    context: _Context,
) -> CellFinding:
    own = cell_doubts(one, context.outlying, context.overlapping)
    metrics = summaries(one)
    return CellFinding(
        cell=one.cell,
        label=one.label,
        axes=one.planned.axes,
        hardware=context.hardware.get(one.hardware),
        planned=sum(run.run is not None for run in one.runs),
        measured=len(one.measured),
        outcomes=_counted(one.runs),
        reasons=tuple(dict.fromkeys(run.reason for run in one.runs if run.reason is not None)),
        rate=own_rate(one, context.family.confidence),
        speedup=comparison.speedup,
        verdict=comparison.verdict,
        verdict_reason=comparison.reason,
        quality=quality.mean,
        quality_verdict=quality.verdict,
        metrics=metrics,
        memory_share=memory_share(metrics, one.effective, context.manifest.site),
        effective=one.effective.model_dump(mode="json") if one.effective else {},
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


@dataclass(frozen=True)
class _Money:
    """The notes on costs in the findings: why there are none, which are missing, and the prices behind them."""

    note: str | None
    gaps: tuple[str, ...] = ()
    prices: tuple[PriceUsed, ...] = ()


def _costs(groups: Sequence[CellRuns], manifest: Manifest, family: Family) -> tuple[list[dict[str, Estimate]], _Money]:
    """Return each cell's costs and the notes on them. A wrong price removes the costs but not the report."""
    prices = manifest.settings.prices
    if prices.unusable is not None:
        return [{} for _ in groups], _Money(f"the prices cannot be used: {prices.unusable}")
    found = [costs(one, prices, family) for one in groups]
    return found, _Money(note(prices, found), gaps(groups, found), used(groups, found, prices))


def _claims(manifest: Manifest, groups: Sequence[CellRuns]) -> tuple[ClaimFinding, ...]:
    rules = manifest.settings.analysis
    return judge_claims(manifest.settings.report.claims, groups, rules.confidence, rules.across)


def _visible(repeats: int, noise: float | None, rules: Rules) -> float | None:
    if noise is None:
        return None
    family, threshold = rules.family, rules.threshold
    effect = smallest_visible_effect(
        repeats, noise, family=family.size, confidence=family.confidence, threshold=threshold
    )
    return None if effect is None else significant(effect)
