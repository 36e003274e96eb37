"""From the runs to the findings: every number of the report, computed here and rounded once.

A pure function: the same records give the same findings to the last digit, whatever the order of the rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
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
from accelsweep.records.estimates import Estimate
from accelsweep.records.file_times import bring_all_back
from accelsweep.records.findings import CellFinding, Findings, Section
from accelsweep.records.layout import SweepFolder, planned_sweep, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_environment import HardwareKind, names_of
from accelsweep.signals import exit_code_of


@dataclass(frozen=True)
class Analysis:
    """A sweep's settings: each compared with its baseline, priced, and all weighed against each other.

    Findings are made of it, and so are the sections of features. `folder` is where the sweep lies, None for runs in
    memory and for several merged sweeps; `home` is the working directory that holds it, or all of them.
    """

    manifest: Manifest
    rows: list[RunRow]
    groups: list[CellRuns]
    rules: Rules
    names: dict[HardwareKind, str]
    measure: QualityMeasure
    comparisons: list[Comparison]
    cells: tuple[CellFinding, ...]
    money: _Money
    weighed: Weighed
    folder: SweepFolder | None = None
    home: Path | None = None

    @classmethod
    def of(
        cls, runs: Iterable[RunRow], manifest: Manifest, folder: SweepFolder | None = None, home: Path | None = None
    ) -> Analysis:
        """Analyse the runs that `collect` found of the sweep that `manifest` plans."""
        rows = in_order(runs)
        groups = group(manifest, rows)
        rules = Rules.of(manifest, groups)
        names = names_of(one.hardware for one in groups)
        measure = measure_of(groups, manifest.settings.analysis.quality_margin)
        comparisons = against_baseline(groups, manifest, rules)
        prices, money = _costs(groups, manifest, Family(1, rules.family.confidence))
        context = Context(names, rules.family, outlying_runs(groups), overlapping_runs(rows), manifest)
        asked = [Asked(one, found.partner, found.verdict) for one, found in zip(groups, comparisons, strict=True)]
        good, levels = qualities(asked, rules.family, measure), two_levels(groups)
        cells = tuple(
            finding_of(*parts, context) for parts in zip(groups, comparisons, prices, good, levels, strict=True)
        )
        weighed = weigh(manifest, groups, comparisons, cells, rules, measure, names)
        home = folder.home if folder is not None else home
        return cls(manifest, rows, groups, rules, names, measure, comparisons, cells, money, weighed, folder, home)


def analyse(
    runs: Iterable[RunRow], manifest: Manifest, folder: SweepFolder | None = None, home: Path | None = None
) -> Findings:
    """Return the findings of the sweep that `manifest` plans from the runs that `collect` found.

    `folder` is where the sweep lies; several merged sweeps have no folder, but a `home`.
    """
    found = Analysis.of(runs, manifest, folder, home)
    rows, groups, rules, weighed = found.rows, found.groups, found.rules, found.weighed
    curves = scaling_curves(groups)
    built = {
        feature.name: registry.load(feature.section.build)(found) for feature in registry.features() if feature.section
    }
    sections: dict[str, Section] = {name: section for name, section in built.items() if section is not None}
    own_advice = (section.recommendation(manifest) for section in sections.values())
    compares_nodes = any(section.compares_nodes for section in sections.values())
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
        doubts=tuple(sweep_doubts(groups, manifest.baseline, weighed.repeats, of_nodes=compares_nodes)),
        family=rules.family.size,
        quality_metric=found.measure.metric,
        quality_better=found.measure.better,
        smallest_visible_effect=weighed.visible,
        pareto=weighed.pareto,
        pareto_objectives=weighed.objectives,
        recommendation=next(filter(None, own_advice), weighed.recommendation),
        outcomes=counted(rows),
        rate_metric=rate_metric_of(manifest, rows),
        rate_unit=groups[0].rate_unit if groups else "",
        hardware=hardware_of(found.names),
        refusals=tuple(dict.fromkeys(one.refusal for one in found.comparisons if one.refusal is not None)),
        scaling=scaling(curves, rules),
        laws=scaling_laws(curves, rules),
        environment=environment(manifest, rows),
        records_sha256=records_digest(rows),
        batch_curves=batch_curves(groups, found.names),
        costs_note=found.money.note,
        cost_gaps=found.money.gaps,
        prices=found.money.prices,
        origin=origin_of(rows),
        looks=tuple(rules.looks),
        sections=sections,
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


# All findings of a sweep's folder: of its records, with the other sweeps that claims name, and its profiles beside.


def findings_of(folder: SweepFolder) -> Findings:
    """Collect the sweep's records, write them as one table, and return the findings."""
    manifest, runs = Manifest.read(folder.manifest), collect(folder)
    return analyse(runs, manifest, folder)


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
