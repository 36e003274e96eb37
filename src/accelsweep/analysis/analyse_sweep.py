"""From the runs to the findings: every number of the report, computed here and rounded once.

A pure function: the same records give the same findings to the last digit, whatever the order of the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from accelsweep.analyse.advice.fleet import about_fleet
from accelsweep.analyse.beside.elsewhere import Onto, elsewhere, projected_cell
from accelsweep.analyse.beside.others import other_sweeps
from accelsweep.analyse.beside.profiles import with_profiles
from accelsweep.analyse.claims.judge import judge_claims
from accelsweep.analyse.claims.wide import WideFigures
from accelsweep.analyse.findings.cells.priced import priced
from accelsweep.analyse.findings.curves.ladder import ladders
from accelsweep.analyse.fleet.nodes import fleet_of
from accelsweep.analysis.baseline_comparison import Comparison, Rules, against_baseline, noise_against_baseline, pair_of
from accelsweep.analysis.collect import collect
from accelsweep.analysis.costs import costs, gaps, note, used
from accelsweep.analysis.headline import command
from accelsweep.analysis.intervals import Family, paired_interval, variance
from accelsweep.analysis.power import Needed, PairNoise, repeats_for
from accelsweep.analysis.quality import Asked, QualityMeasure, measure_of, qualities
from accelsweep.analysis.recommendation import Weighed, weigh
from accelsweep.analysis.run_results import (
    CellRuns,
    RunRow,
    environment,
    group,
    hardware_of,
    in_order,
    origin_of,
    rate_metric_of,
    records_digest,
)
from accelsweep.analysis.scaling import batch_curves, scaling, scaling_curves, scaling_laws
from accelsweep.analysis.setting_findings import Context, counted, finding_of
from accelsweep.analysis.simultaneous_intervals import Pair, pools
from accelsweep.analysis.sweep_doubts import outlying_runs, overlapping_runs, sweep_doubts, two_levels
from accelsweep.config.prices import PriceUsed
from accelsweep.config.sweep_options import PILOT
from accelsweep.core.findings.judged import ClaimFinding
from accelsweep.records.estimates import Estimate
from accelsweep.records.file_times import bring_all_back
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.layout import SweepFolder, planned_sweep, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_environment import HardwareKind, names_of
from accelsweep.signals import exit_code_of

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


# All findings of a sweep's folder: of its records, with the other sweeps that claims name, and its profiles beside.


def findings_of(folder: SweepFolder) -> Findings:
    """Collect the sweep's records, write them as one table, and return the findings."""
    manifest, runs = Manifest.read(folder.manifest), collect(folder)
    found = analyse(runs, manifest, others=other_sweeps(folder, manifest))
    return with_profiles(found, folder, runs, manifest)


# `python -m accelsweep.analysis.analyse_sweep sweeps/NAME`: collect the sweep's records and write its findings.json.


def main(arguments: list[str] | None = None) -> int:
    """Analyse the sweep named on the command line and return the exit code."""
    description = "Collect the sweep's records and write its findings.json."
    root = sweep_parser("analysis.analyse_sweep", description).parse_args(arguments).sweep
    return exit_code_of(lambda: _write_findings(planned_sweep(root)))


def _write_findings(folder: SweepFolder) -> None:
    findings_of(folder).write(folder.findings)
    bring_all_back(folder)


# The noise that a sweep's runs have shown so far, for the plan of its further blocks.


def noise_so_far(runs: Iterable[RunRow], manifest: Manifest) -> float | None:
    """Return the standard deviation of one run's log rate, by which the report tells what it can see; or None.

    `runs` are those that `collect` found. None where no setting shares two blocks with its baseline.
    """
    groups = group(manifest, in_order(runs))
    return noise_against_baseline(groups, against_baseline(groups, manifest, Rules.of(manifest, groups)))


# The noise of a sweep's first 3 blocks, and the number of blocks that `repeats: auto` then takes in all.


def repeats_from_pilot(runs: Iterable[RunRow], manifest: Manifest, resolution: float, most: int) -> Needed | None:
    """Return how many blocks the sweep needs in all, from the runs that `collect` found.

    The first 3 shared blocks of each comparison count, in the manifest's order. So the answer stays when more blocks
    are measured. It does not depend on the ratios. None where no comparison has 3 shared blocks with some spread.
    `resolution` and `most` as in `analysis.power.repeats_for`, which raises ValueError for impossible ones.
    """
    groups = group(manifest, in_order(runs))
    rules = Rules.of(manifest, groups)
    order = [block.name for block in manifest.blocks]
    pairs = [
        _first_blocks(one, found.partner, order)
        for one, found in zip(groups, against_baseline(groups, manifest, rules), strict=True)
        if found.partner is not None and found.partner is not one
    ]
    family = rules.family
    return repeats_for(_noise(pairs), family.size, resolution=resolution, most=most, confidence=family.confidence)


def _first_blocks(one: CellRuns, partner: CellRuns, order: list[str]) -> Pair:
    """Return the pair in the first blocks of `order` that both sides have, as many as a pilot has."""
    shared = [block for block in order if block in one.blocks & partner.blocks][:PILOT]
    sides = [{block: side.log_rates[block] for block in shared} for side in (one, partner)]
    return pair_of(one, partner, *sides)


def _noise(pairs: list[Pair]) -> list[PairNoise]:
    """Return the variance of each pair with 3 shared blocks and some spread: moderated in a pool, its own alone."""
    found: dict[int, PairNoise] = {
        index: PairNoise(variance(pair.differences))
        for index, pair in enumerate(pairs)
        if len(pair.differences) == PILOT and paired_interval(pair.a, pair.b, Family()).half_width is not None
    }
    for pool in pools(pairs):
        shown = pool.moderated
        for index, shrunk in zip(pool.members, shown.variance, strict=True):
            found[index] = PairNoise(float(shrunk), float(shown.prior_degrees), len(pool.members))
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
