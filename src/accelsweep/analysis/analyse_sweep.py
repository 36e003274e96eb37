"""Turns runs into findings: every number in the report is computed here and rounded once.

`analyse` is a pure function: the same records produce the same findings to the last digit, regardless of their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
from accelsweep.analysis.baseline_comparison import (
    Comparison,
    Rules,
    compare_with_baseline,
    comparison_noise,
    make_pair,
)
from accelsweep.analysis.collect import collect
from accelsweep.analysis.costs import costs, missing_costs, no_cost_reason, prices_used
from accelsweep.analysis.intervals import Family, paired_interval, variance
from accelsweep.analysis.quality import QualityMeasure, compare_quality, quality_measure
from accelsweep.analysis.recommendation import Assessment, assess
from accelsweep.analysis.run_results import (
    RunRow,
    SettingRuns,
    environment_summary,
    group_runs,
    origin_of,
    rate_metric_of,
    records_digest,
    sorted_runs,
)
from accelsweep.analysis.scaling import batch_curves, scaling, scaling_curves, scaling_laws
from accelsweep.analysis.setting_findings import Context, build_finding, count_outcomes
from accelsweep.analysis.simultaneous_intervals import pools
from accelsweep.analysis.statistical_power import PairNoise, RepeatsNeeded, repeats_for_resolution
from accelsweep.analysis.sweep_doubts import outlying_runs, overlapping_runs, sweep_doubts, two_levels
from accelsweep.config.sweep_options import PILOT_BLOCKS
from accelsweep.garbage_collection import collector_paused
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings, Hardware, Section, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import needs_change
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_commands import sweep_command
from accelsweep.run_environment import HardwareKind, hardware_names


@dataclass(frozen=True)
class Analysis:
    """The analysis of a sweep: the comparison and costs of each setting, and the joint assessment of all settings.

    The findings and the features' report sections are built from this object. `folder` is the sweep's folder, or None
    for runs in memory and for merged sweeps; `home` is the working directory that contains the sweep's folder or all
    merged sweeps.
    """

    manifest: Manifest
    rows: list[RunRow]
    groups: list[SettingRuns]
    rules: Rules
    names: dict[HardwareKind, str]
    measure: QualityMeasure
    comparisons: list[Comparison]
    costs: list[dict[str, Estimate]]
    settings: tuple[SettingFinding, ...]
    assessment: Assessment
    folder: SweepFolder | None = None
    home: Path | None = None

    @classmethod
    def of(
        cls, runs: Iterable[RunRow], manifest: Manifest, folder: SweepFolder | None = None, home: Path | None = None
    ) -> Analysis:
        """Analyse the runs that `collect` returned for the sweep planned in `manifest`."""
        rows = sorted_runs(runs)
        groups = group_runs(manifest, rows)
        rules = Rules.of(manifest, groups)
        names = hardware_names(group.hardware for group in groups)
        measure = quality_measure(groups, manifest.options.analysis.quality_margin)
        comparisons = compare_with_baseline(groups, manifest, rules)
        prices = manifest.options.prices
        priced = [costs(one, prices, Family(1, rules.family.confidence)) for one in groups]
        counts = Counter(group.setting for group in groups)
        repeated = {name for name, count in counts.items() if count > 1}
        context = Context(names, rules.family, outlying_runs(groups), overlapping_runs(rows), repeated, manifest)
        quality = compare_quality(groups, comparisons, rules.family, measure)
        settings = tuple(
            build_finding(*parts, context)
            for parts in zip(groups, comparisons, priced, quality, two_levels(groups), strict=True)
        )
        assessment = assess(manifest, groups, comparisons, settings, rules, measure, names)
        home = folder.home if folder is not None else home
        return cls(
            *(manifest, rows, groups, rules, names, measure, comparisons, priced, settings, assessment, folder, home)
        )


@collector_paused()
def analyse(
    runs: Iterable[RunRow], manifest: Manifest, folder: SweepFolder | None = None, home: Path | None = None
) -> Findings:
    """Return the findings of the sweep planned in `manifest`, based on the runs that `collect` returned.

    `folder` is the sweep's folder; for merged sweeps, pass only `home`.
    """
    analysis = Analysis.of(runs, manifest, folder, home)
    rows, groups, rules, assessment = analysis.rows, analysis.groups, analysis.rules, analysis.assessment
    sections: dict[str, Section] = {}
    for feature in registry.features():
        if feature.section and (section := registry.load(feature.section.build)(analysis)) is not None:
            sections[feature.name] = section
    recommendation = assessment.recommendation
    for section in sections.values():
        recommendation = section.recommendation(manifest, recommendation)
    if folder is not None and needs_change(folder, manifest):
        recommendation = recommendation.model_copy(update={"settle": None})  # the command would fail again
    compares_nodes = any(section.compares_nodes for section in sections.values())
    prices, curves = manifest.options.prices, scaling_curves(groups)
    return Findings(
        sweep=manifest.sweep,
        revision=manifest.revision,
        experiment=manifest.experiment,
        overrides=manifest.overrides,
        command=sweep_command(manifest),
        axes=manifest.axes,
        baseline=manifest.baseline,
        threshold=rules.threshold,
        confidence=rules.family.confidence,
        planned_runs=len(manifest.wanted_runs()),
        excluded=manifest.excluded,
        settings=analysis.settings,
        repeats=assessment.repeats,
        doubts=tuple(sweep_doubts(groups, manifest.baseline, assessment.repeats, compares_nodes=compares_nodes)),
        family=rules.family.size,
        quality_metric=analysis.measure.metric,
        quality_better=analysis.measure.better,
        smallest_visible_effect=assessment.visible,
        pareto=assessment.pareto,
        pareto_objectives=assessment.objectives,
        recommendation=recommendation,
        outcomes=count_outcomes(rows),
        rate_metric=rate_metric_of(manifest, rows),
        rate_unit=groups[0].rate_unit if groups else "",
        hardware=tuple(
            Hardware(name=name, details=kind.details)
            for kind, name in sorted(analysis.names.items(), key=lambda item: item[1])
        ),
        refusals=tuple(dict.fromkeys(one.reason for one in analysis.comparisons if one.verdict is Verdict.refused)),
        scaling=scaling(curves, rules),
        laws=scaling_laws(curves, rules),
        environment=environment_summary(manifest, rows),
        records_sha256=records_digest(rows),
        batch_curves=batch_curves(groups, analysis.names),
        costs_note=no_cost_reason(prices, analysis.costs),
        cost_gaps=missing_costs(groups, analysis.costs),
        prices=prices_used(groups, analysis.costs, prices),
        origin=origin_of(rows),
        looks=tuple(rules.looks),
        sections=sections,
    )


def analyse_folder(folder: SweepFolder) -> Findings:
    """Collect the sweep's records, write them to a single table, and return the findings."""
    manifest = Manifest.read(folder.manifest)
    return analyse(collect(folder), manifest, folder)


def observed_noise(runs: Iterable[RunRow], manifest: Manifest) -> float | None:
    """Return the standard deviation of one run's log rate, estimated from the runs so far to plan further blocks.

    None unless at least one setting shares two or more blocks with its baseline.
    """
    groups = group_runs(manifest, sorted_runs(runs))
    return comparison_noise(groups, compare_with_baseline(groups, manifest, Rules.of(manifest, groups)))


def repeats_from_pilot(
    runs: Iterable[RunRow], manifest: Manifest, resolution: float, most: int
) -> RepeatsNeeded | None:
    """Return how many blocks the sweep needs in total (`repeats: auto`), based on the runs that `collect` returned.

    Only the first 3 common blocks of each comparison, in the manifest's order, are used, so the result does not change
    when more blocks are measured, nor does it depend on the ratios. None if no comparison has 3 common blocks in which
    the ratio varies. `resolution` and `most` are passed to `analysis.statistical_power.repeats_for_resolution`, which
    raises ValueError for invalid values.
    """
    groups = group_runs(manifest, sorted_runs(runs))
    rules = Rules.of(manifest, groups)
    pairs = []
    for group, comparison in zip(groups, compare_with_baseline(groups, manifest, rules), strict=True):
        partner = comparison.partner
        if partner is not None and partner is not group:
            common = group.blocks & partner.blocks
            first = [block.name for block in manifest.blocks if block.name in common][:PILOT_BLOCKS]
            ours, theirs = ({block: side.log_rates[block] for block in first} for side in (group, partner))
            pairs.append(make_pair(group, partner, ours, theirs))
    noise = {
        index: PairNoise(variance(pair.differences))
        for index, pair in enumerate(pairs)
        if len(pair.differences) == PILOT_BLOCKS and paired_interval(pair.a, pair.b, Family()).half_width is not None
    }
    for pool in pools(pairs):
        moderated = pool.moderated
        for index, shrunk in zip(pool.members, moderated.variance, strict=True):
            noise[index] = PairNoise(float(shrunk), float(moderated.prior_degrees), len(pool.members))
    size, confidence = rules.family.size, rules.family.confidence
    return repeats_for_resolution(list(noise.values()), size, resolution=resolution, most=most, confidence=confidence)
