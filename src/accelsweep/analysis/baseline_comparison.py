"""Compares settings with their baseline or the best setting.

Each comparison has a ratio, an interval and a verdict, or a reason why these are not available.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from accelsweep.analysis.comparability import build_doubt, incompatibility, with_constant_size, with_search_brackets
from accelsweep.analysis.intervals import (
    MIN_PAIRS,
    Family,
    exponential_estimate,
    is_paired,
    log_ratio,
    pooled_noise,
    t_interval,
    verdict,
)
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.analysis.simultaneous_intervals import BlockValues, Pair, repeated_interval, simultaneous_intervals
from accelsweep.analysis.sweep_doubts import uneven_noise
from accelsweep.records.early_decisions import EarlyDecision
from accelsweep.records.estimates import Estimate, Speedup, Verdict
from accelsweep.records.plan import Manifest
from accelsweep.results import MAX_DISTURBED_SHARE, Doubt, Outcome
from accelsweep.significant_digits import approximate_duration, count_of

MIN_BLOCKS_ACROSS_HARDWARE = 3
"""The number of blocks each side needs for a verdict across hardware; paired comparisons require the same number."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of a setting with its `partner`, the baseline on comparable hardware."""

    speedup: Speedup | None
    verdict: Verdict
    reason: str
    partner: SettingRuns | None = None
    doubts: tuple[Doubt, ...] = ()

    @property
    def ratio(self) -> Estimate | None:
        """The ratio to the partner's rate, if available."""
        return None if self.speedup is None else self.speedup.ratio


@dataclass(frozen=True)
class Rules:
    """The inputs to verdicts: the family, the practical threshold, the swept axes, and the fields that may differ.

    `looks` lists the block counts after which interim analyses are made, whose verdicts determine whether to add
    blocks; it is empty if the number of blocks is fixed.
    """

    family: Family
    threshold: float
    axes: Collection[str]
    across: Collection[str]
    looks: Sequence[int] = ()

    @classmethod
    def of(cls, manifest: Manifest, groups: Sequence[SettingRuns]) -> Rules:
        """Return the rules for these settings' ratios, based on the sweep's options."""
        options, analysis = manifest.options, manifest.options.analysis
        family = Family(family_size(groups, manifest), analysis.confidence)
        looks = options.looks if options.until_decided else ()
        return cls(family, analysis.threshold, manifest.axes, analysis.across, looks)


def family_size(groups: Sequence[SettingRuns], manifest: Manifest) -> int:
    """Return the number of ratios that a sweep reports: one per supported non-baseline setting.

    Unmeasured settings are counted as well, so that the other intervals do not become narrower if a setting fails or
    the sweep is analysed before it has finished.
    """
    baselines = manifest.baselines
    return max(1, sum(group.setting not in baselines and group.planned.unsupported is None for group in groups))


def compare_with_baseline(groups: Sequence[SettingRuns], manifest: Manifest, rules: Rules) -> list[Comparison]:
    """Compare each setting with its baseline on comparable hardware.

    All settings are compared in a single call, because each interval depends on the noise of the other settings.
    """
    by_name: dict[str, list[SettingRuns]] = {}
    for group in groups:
        by_name.setdefault(group.setting, []).append(group)
    partners = manifest.partners
    settled = [_partner_or_reason(group, by_name.get(partners.get(group.setting, ""), []), rules) for group in groups]
    pairs = [(group, other) for group, other in zip(groups, settled, strict=True) if isinstance(other, SettingRuns)]
    compared = iter(compare(pairs, rules))
    return [result if isinstance(result, Comparison) else next(compared) for result in settled]


def _partner_or_reason(group: SettingRuns, baselines: Sequence[SettingRuns], rules: Rules) -> Comparison | SettingRuns:
    """Return the comparable baseline with the most blocks in common, or a comparison stating why there is none."""
    if not group.rated:
        return Comparison(None, Verdict.not_measured, outcome_summary(group))
    if any(group.setting == base.setting for base in baselines):
        return Comparison(None, Verdict.baseline, "the setting that the others are compared with", group)
    if not baselines:
        return Comparison(None, Verdict.undecided, "the plan specifies no baseline to compare with")
    measured = [base for base in baselines if base.rated]
    if not measured:
        reason = f"the baseline was not measured: {outcome_summary(baselines[0])}"
        return Comparison(None, Verdict.undecided, reason)
    refusals = [incompatibility(group, base, rules.axes, rules.across) for base in measured]
    comparable = [base for base, refusal in zip(measured, refusals, strict=True) if refusal is None]
    if not comparable:
        return Comparison(None, Verdict.refused, refusals[0] or "")
    return max(comparable, key=lambda base: len(group.blocks & base.blocks))


def comparison_noise(groups: Sequence[SettingRuns], comparisons: Sequence[Comparison]) -> float | None:
    """Return the standard deviation of one run's log rate, pooled over settings and their baselines, or None."""
    pairs = ((group, found.partner) for group, found in zip(groups, comparisons, strict=True))
    return pooled_noise(
        (group.log_rates, partner.log_rates) for group, partner in pairs if partner is not None and partner is not group
    )


def compare(pairs: Sequence[tuple[SettingRuns, SettingRuns]], rules: Rules) -> list[Comparison]:
    """Compare measured, comparable settings by the ratio of each setting's rate to its partner's.

    Pairs on the same kind of hardware share a pool of variances; the family in `rules` spans all pairs. If there are
    interim analyses, variances are not pooled, because the number of blocks then depends on each pair's values.
    """
    logs = [make_pair(group, partner, group.log_rates, partner.log_rates) for group, partner in pairs]
    if rules.looks:
        intervals = [repeated_interval(pair.a, pair.b, rules.family, tuple(rules.looks)) for pair in logs]
    else:
        intervals = simultaneous_intervals(logs, rules.family, log_ratio)
    comparisons = []
    for (group, partner), interval, uneven in zip(pairs, intervals, uneven_noise(logs, rules.family.size), strict=True):
        if group.decision is not None and group.decision.blocks[0] in partner.blocks:
            comparisons.append(_decided_early(group, partner, group.decision))
            continue
        ratio = exponential_estimate(with_search_brackets(group, partner, interval), "1", rules.family)
        paired = is_paired(group.log_rates, partner.log_rates)
        decision, reason = _verdict(group, partner, ratio, rules.threshold)
        doubts = (build_doubt(group, partner), None if paired else _unpaired_doubt(group, partner), uneven)
        found = tuple(doubt for doubt in doubts if doubt is not None)
        comparisons.append(Comparison(Speedup(ratio=ratio, paired=paired), decision, reason, partner, found))
    return comparisons


def _decided_early(group: SettingRuns, partner: SettingRuns, decision: EarlyDecision) -> Comparison:
    """Return the comparison with the interval of an early decision, which holds however many blocks there would be."""
    left_out = sum(run.outcome is Outcome.decided for run in group.runs)
    saved = approximate_duration(left_out * decision.run_seconds)
    reason = f"{decision.reason}; {count_of(left_out, 'repeat')} left out, which saved about {saved}"
    return Comparison(Speedup(ratio=decision.ratio, paired=True), Verdict.slower, reason, partner)


def make_pair(group: SettingRuns, partner: SettingRuns, ours: BlockValues, theirs: BlockValues) -> Pair:
    """Combine two settings' values into a pair whose pool is keyed by the hardware of both settings."""
    return Pair(ours, theirs, (group.setting, partner.setting), (group.hardware, partner.hardware))


def _verdict(group: SettingRuns, partner: SettingRuns, ratio: Estimate, threshold: float) -> tuple[Verdict, str]:
    """Return the verdict that the interval supports, unless disturbances or too few blocks rule out a verdict."""
    for side, whose in ((group, "its own"), (partner, "the other side's")):
        if (disturbed := disturbance(side)) is not None:
            return Verdict.disturbed, f"{whose} runs were disturbed: {disturbed}"
    if on_different_hardware(group, partner):
        blocks, least = min(len(group.blocks), len(partner.blocks)), MIN_BLOCKS_ACROSS_HARDWARE
        if blocks < least:
            return Verdict.not_yet, f"a verdict across hardware requires {least} blocks of each side, not {blocks}"
    elif not is_paired(group.log_rates, partner.log_rates):
        shared = len(group.blocks & partner.blocks)
        return Verdict.not_yet, f"a verdict requires {MIN_PAIRS} blocks that contain both sides, not {shared}"
    return verdict(ratio, threshold, group.rate_metric)


def disturbance(group: SettingRuns) -> str | None:
    """Describe the disturbance if it affected more than `MAX_DISTURBED_SHARE` of the rated runs: `3 of 3 runs: ...`."""
    disturbed = [doubts for run in group.rated if (doubts := [doubt for doubt in run.doubts if doubt.disturbing])]
    if len(disturbed) <= MAX_DISTURBED_SHARE * len(group.rated):
        return None
    return f"{len(disturbed)} of {len(group.rated)} runs: {disturbed[0][0].message}"


def on_different_hardware(group: SettingRuns, partner: SettingRuns) -> bool:
    """Return whether the two sides ran on different nodes and so cannot share a block."""
    return group.hardware != partner.hardware and not group.blocks & partner.blocks


def possibly_as_fast_as(best: SettingRuns, others: Sequence[SettingRuns], rules: Rules) -> list[SettingRuns]:
    """Return the settings in `others` that are comparable with `best` and may be equally fast.

    After J. C. Hsu, "Simultaneous confidence intervals for all distances from the 'best'", Annals of Statistics 1981: a
    setting is worse only if the interval for its ratio to the best is entirely below 1.
    """
    rivals = [
        other
        for other in others
        if other is not best and other.rated and incompatibility(other, best, rules.axes, rules.across) is None
    ]
    highest = [found.ratio.high if found.ratio else None for found in compare([(one, best) for one in rivals], rules)]
    return [other for other, high in zip(rivals, highest, strict=True) if high is None or high >= 1.0]


def rate_estimate(group: SettingRuns, confidence: float) -> Estimate | None:
    """Return the geometric mean of a setting's rates with its interval, or None if it has no rates.

    The interval is not adjusted for multiple comparisons.
    """
    if not group.rated:
        return None
    family = Family(1, confidence)
    interval = with_constant_size(group, t_interval(list(group.log_rates.values()), family))
    return exponential_estimate(interval, group.rate_unit, family)


def ratio_in_block(partner: SettingRuns, rate: float, block: str | None) -> float | None:
    """Return the ratio of a rate to the partner's rate in the same block.

    If the partner has no rate in that block, its mean rate is used. None if the partner has no rates.
    """
    logs = partner.log_rates
    if not logs:
        return None
    return math.exp(math.log(rate) - logs.get(block or "", fmean(logs.values())))


def outcome_summary(group: SettingRuns) -> str:
    """Describe how the runs of a setting without a rate ended: `3 of 3 runs: out_of_memory (cannot allocate ...)`."""
    if group.planned.unsupported is not None:
        return f"unsupported: {group.planned.unsupported}"
    metric, parts = group.rate_metric, []
    for outcome in Outcome:
        if ended := [run for run in group.runs if run.outcome is outcome]:
            reasons = (run.reason or (run.metrics[metric].reason if metric in run.metrics else None) for run in ended)
            reason = next((reason for reason in reasons if reason), "no rate was recorded")
            parts.append(f"{len(ended)} of {len(group.runs)} runs: {outcome} ({reason})")
    return "; ".join(parts) if parts else "no runs are planned"


def _unpaired_doubt(group: SettingRuns, partner: SettingRuns) -> Doubt:
    if on_different_hardware(group, partner):
        ours, theirs = (len({run.machine for run in side.rated}) for side in (group, partner))
        others = (
            "a single node reveals nothing about others of its kind"
            if 1 in (ours, theirs)
            else "other nodes may differ"
        )
        return Doubt(
            code="unlike_nodes",
            message=f"measured on {count_of(ours, 'node')} of one kind, the baseline on {count_of(theirs, 'node')} of "
            f"another; the interval is based on blocks and applies only to these nodes: {others}",
            remedy="run more repeats on more nodes of each kind, because even nodes of the same kind differ",
        )
    shared = len(group.blocks & partner.blocks)
    return Doubt(
        code="unpaired",
        message=f"blocks that contain both this setting and the baseline: {shared}; block effects are not removed",
        remedy="measure both in 3 or more common blocks: raise repeats, or run the same command with --add-repeats 3",
    )
