"""From the runs to the findings: every number of the report, computed here and rounded once.

A pure function: the same records give the same findings to the last digit, whatever the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from accelsweep.analyse.advice.fleet import about_fleet
from accelsweep.analyse.advice.weigh import Weighed, weigh
from accelsweep.analyse.advice.words import command
from accelsweep.analyse.beside.elsewhere import Onto, elsewhere, projected_cell
from accelsweep.analyse.claims.judge import judge_claims
from accelsweep.analyse.claims.wide import WideFigures
from accelsweep.analyse.collected.origin import environment, hardware_of, origin_of, records_digest
from accelsweep.analyse.collected.runs import CellRuns, RunRow, group, in_order, rate_metric_of
from accelsweep.analyse.findings.against_baseline import Comparison, Rules, against_baseline
from accelsweep.analyse.findings.cells.cell import Context, counted, finding_of
from accelsweep.analyse.findings.cells.cost import costs, gaps, note, used
from accelsweep.analyse.findings.cells.priced import priced
from accelsweep.analyse.findings.curves.batch import batch_curves
from accelsweep.analyse.findings.curves.ladder import ladders
from accelsweep.analyse.findings.curves.laws import scaling_laws
from accelsweep.analyse.findings.curves.scaling import scaling, scaling_curves
from accelsweep.analyse.findings.doubts import outlying_runs, overlapping_runs, sweep_doubts
from accelsweep.analyse.findings.noise_doubts import two_levels
from accelsweep.analyse.findings.quality import Asked, QualityMeasure, measure_of, qualities
from accelsweep.analyse.fleet.nodes import fleet_of
from accelsweep.analyse.statistics.intervals import Family
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.planned.prices import PriceUsed
from accelsweep.core.recorded.hardware import HardwareKind, names_of

Others = Mapping[str, Sequence[CellRuns]]
"""The runs of other sweeps, by their names, for claims that name them."""


def analyse(
    runs: Iterable[RunRow], manifest: Manifest, onto: Onto | None = None, others: Others | None = None
) -> Findings:
    """Return the findings of the sweep that `manifest` plans from the runs that `collect` found.

    `onto` says for which devices there are projections, and with which prices: the usual ones with the sweep's.
    `others` has the sweeps that the claims' figures name.
    """
    rows = in_order(runs)
    found = _compared(rows, manifest)
    groups, rules, names, weighed = found.groups, found.rules, found.names, found.weighed
    curves, fleet = scaling_curves(groups), fleet_of(rows, manifest)
    return Findings(
        sweep=manifest.sweep,
        revision=manifest.revision,
        experiment=manifest.experiment,
        overrides=manifest.overrides,
        command=command(manifest),
        axes=manifest.axes,
        baseline=manifest.baseline,
        threshold=rules.threshold,
        confidence=rules.family.confidence,
        planned_runs=len(manifest.wanted_runs()),
        excluded=manifest.excluded,
        cells=found.cells,
        repeats=weighed.repeats,
        doubts=tuple(sweep_doubts(groups, manifest.baseline, weighed.repeats, of_nodes=fleet is not None)),
        family=rules.family.size,
        quality_metric=found.measure.metric,
        quality_better=found.measure.better,
        smallest_visible_effect=weighed.visible,
        pareto=weighed.pareto,
        pareto_objectives=weighed.objectives,
        recommendation=weighed.recommendation if fleet is None else about_fleet(fleet, manifest),
        outcomes=counted(rows),
        rate_metric=rate_metric_of(manifest, rows),
        rate_unit=groups[0].rate_unit if groups else "",
        hardware=hardware_of(names),
        refusals=tuple(dict.fromkeys(one.refusal for one in found.comparisons if one.refusal is not None)),
        scaling=scaling(curves, rules),
        laws=scaling_laws(curves, rules),
        environment=environment(manifest, rows),
        records_sha256=records_digest(rows),
        batch_curves=batch_curves(groups, names),
        costs_note=found.money.note,
        cost_gaps=found.money.gaps,
        prices=found.money.prices,
        claims=_claims(manifest, groups, others or {}),
        ladder=ladders(groups, manifest.settings.report.ladder, rules, names),
        origin=origin_of(rows),
        looks=tuple(rules.looks),
        elsewhere=elsewhere(groups, weighed.recommendation.choice, names, onto or Onto.usual(manifest)),
        fleet=fleet,
    )


@dataclass(frozen=True)
class _Money:
    """The notes on costs in the findings: why there are none, which are missing, and the prices behind them."""

    note: str | None
    gaps: tuple[str, ...] = ()
    prices: tuple[PriceUsed, ...] = ()


@dataclass(frozen=True)
class _Compared:
    """The cells of a sweep, each compared with its baseline, priced, and all weighed against each other."""

    groups: list[CellRuns]
    rules: Rules
    names: dict[HardwareKind, str]
    measure: QualityMeasure
    comparisons: list[Comparison]
    cells: tuple[CellFinding, ...]
    money: _Money
    weighed: Weighed


def _compared(rows: Sequence[RunRow], manifest: Manifest) -> _Compared:
    groups = group(manifest, rows)
    rules = Rules.of(manifest, groups)
    names = names_of(one.hardware for one in groups)
    measure = measure_of(groups, manifest.settings.analysis.quality_margin)
    comparisons = against_baseline(groups, manifest, rules)
    prices, money = _costs(groups, manifest, Family(1, rules.family.confidence))
    context = Context(names, rules.family, outlying_runs(groups), overlapping_runs(rows), manifest)
    asked = [Asked(one, found.partner, found.verdict) for one, found in zip(groups, comparisons, strict=True)]
    good, levels = qualities(asked, rules.family, measure), two_levels(groups)
    cells = tuple(finding_of(*parts, context) for parts in zip(groups, comparisons, prices, good, levels, strict=True))
    weighed = weigh(manifest, groups, comparisons, cells, rules, measure, names)
    return _Compared(groups, rules, names, measure, comparisons, cells, money, weighed)


def _costs(groups: Sequence[CellRuns], manifest: Manifest, family: Family) -> tuple[list[dict[str, Estimate]], _Money]:
    """Return each cell's costs and the notes on them. A wrong price removes the costs but not the report."""
    prices = manifest.settings.prices
    if prices.unusable is not None:
        return [{} for _ in groups], _Money(f"the prices cannot be used: {prices.unusable}")
    found = [costs(one, prices, family) for one in groups]
    return found, _Money(note(prices, found), gaps(groups, found), used(groups, found, prices))


def _claims(manifest: Manifest, groups: Sequence[CellRuns], others: Others) -> tuple[ClaimFinding, ...]:
    rules, prices = manifest.settings.analysis, manifest.settings.prices
    known = [priced(one, prices) for one in groups]
    wide = WideFigures(
        {name: [priced(one, prices) for one in runs] for name, runs in others.items()},
        lambda one, key: projected_cell(one, key, prices),
        rules.across,
    )
    return judge_claims(manifest.settings.report.claims, known, rules.confidence, rules.across, wide)
