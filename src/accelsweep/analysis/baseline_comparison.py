"""The cells of one sweep against its baseline: ratio, interval and verdict, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import fmean

from accelsweep.analysis.comparability import build_doubt, difference, of_size, of_sizes
from accelsweep.analysis.intervals import (
    Family,
    Interval,
    exponential_estimate,
    log_ratio,
    pairs_up,
    pooled_noise,
    t_interval,
    verdict,
)
from accelsweep.analysis.run_results import CellRuns, RunRow
from accelsweep.analysis.simultaneous_intervals import Pair, ValuesOfBlocks, intervals, repeated_interval
from accelsweep.analysis.sweep_doubts import uneven_noise
from accelsweep.records.estimates import Estimate, Speedup, Verdict
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Doubt, Outcome
from accelsweep.significant_digits import count_of

# Disturbed cells: measured while others used the machine. Their numbers have no verdict, whatever the interval.

MOST = 0.5
"""The largest share of disturbed runs with which a cell may still be judged."""


def disturbance(group: CellRuns) -> str | None:
    """Return the disturbance if more than `MOST` of a cell's rated runs had one, as `3 of 3 runs: ...`; else None."""
    found = [doubt for run in group.rated for doubt in run.doubts if doubt.disturbing]
    runs = sum(any(doubt.disturbing for doubt in run.doubts) for run in group.rated)
    if runs <= MOST * len(group.rated):
        return None
    return f"{runs} of {len(group.rated)} runs: {found[0].message}"


FEWEST_APART = 3
"""The blocks of each side that a verdict across unlike nodes rests on: as many as pairs need."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of a cell with its `partner`, the baseline on comparable hardware."""

    speedup: Speedup | None
    verdict: Verdict
    reason: str
    partner: CellRuns | None = None
    doubts: tuple[Doubt, ...] = ()

    @property
    def ratio(self) -> Estimate | None:
        """The ratio to the partner's rate, where there is one."""
        return None if self.speedup is None else self.speedup.ratio

    @property
    def refusal(self) -> str | None:
        """The sentence that says why this comparison was refused, or None if it was not."""
        return self.reason if self.verdict is Verdict.refused else None


@dataclass(frozen=True)
class Rules:
    """The rules for verdicts: the family, the practical threshold, the swept axes, the fields to compare across.

    `looks` are the numbers of blocks after which verdicts are looked at, where they decide about more blocks.
    """

    family: Family
    threshold: float
    axes: Collection[str]
    across: Collection[str]
    looks: Sequence[int] = ()

    @classmethod
    def of(cls, manifest: Manifest, groups: Sequence[CellRuns]) -> Rules:
        """Return the rules that the sweep's settings state, for the ratios of these rows."""
        settings, analysis = manifest.settings, manifest.settings.analysis
        family = Family(family_size(groups, manifest), analysis.confidence)
        looks = settings.looks if settings.until_decided else ()
        return cls(family, analysis.threshold, manifest.axes, analysis.across, looks)


def family_size(groups: Sequence[CellRuns], manifest: Manifest) -> int:
    """Return the number of ratios that a sweep prints: one per supported row that is not the baseline's.

    Rows that were not measured count too, so that a failure, or looking early, does not make the others' intervals
    narrower.
    """
    baselines = manifest.baselines
    return max(1, sum(one.cell not in baselines and one.planned.unsupported is None for one in groups))


def against_baseline(groups: Sequence[CellRuns], manifest: Manifest, rules: Rules) -> list[Comparison]:
    """Compare each row with its baseline, which has a row for each kind of hardware.

    All rows are compared at once, because the noise of the other rows goes into each interval.
    """
    rows: dict[str, list[CellRuns]] = {}
    partners = manifest.partners
    for one in groups:
        rows.setdefault(one.cell, []).append(one)
    found = [_beforehand(group, rows.get(partners.get(group.cell, ""), []), rules) for group in groups]
    asked = [(group, one) for group, one in zip(groups, found, strict=True) if isinstance(one, CellRuns)]
    compared = iter(compare(asked, rules))
    return [one if isinstance(one, Comparison) else next(compared) for one in found]


def _beforehand(group: CellRuns, baselines: Sequence[CellRuns], rules: Rules) -> Comparison | CellRuns:
    """Return the baseline that a row is compared with, or the comparison that says why there is none."""
    if not group.rated:
        return Comparison(None, Verdict.not_measured, endings(group))
    if any(group.cell == base.cell for base in baselines):
        return Comparison(None, Verdict.baseline, "the setting that the others are compared with", group)
    measured = [base for base in baselines if base.rated]
    if not measured:
        return Comparison(None, Verdict.undecided, _no_baseline(baselines))
    partner, refusal = _partner(group, measured, rules)
    return Comparison(None, Verdict.refused, refusal) if refusal is not None else partner


def noise_against_baseline(groups: Sequence[CellRuns], comparisons: Sequence[Comparison]) -> float | None:
    """Return the standard deviation of one run's log rate, pooled over the rows and their baselines; or None.

    A baseline is left out, for it equals itself.
    """
    compared = zip(groups, comparisons, strict=True)
    partners = ((one, found.partner) for one, found in compared if found.partner is not one)
    return pooled_noise((one.log_rates, partner.log_rates) for one, partner in partners if partner is not None)


def compare(asked: Sequence[tuple[CellRuns, CellRuns]], rules: Rules) -> list[Comparison]:
    """Compare measured cells that may be compared: the ratio of each one's rate to its partner's.

    The pairs on one kind of hardware share a pool of variances; the family of `rules` is one over all of them.
    """
    pairs = [pair_of(group, partner, group.log_rates, partner.log_rates) for group, partner in asked]
    between = [of_sizes(*sides, one) for sides, one in zip(asked, _intervals(pairs, rules), strict=True)]
    found = zip(asked, between, uneven_noise(pairs, rules.family.size), strict=True)
    return [_comparison(*sides, interval, uneven, rules) for sides, interval, uneven in found]


def _intervals(pairs: Sequence[Pair], rules: Rules) -> list[Interval]:
    """Return the intervals of all pairs; each stands alone where looks have decided about its number of blocks."""
    if rules.looks:
        return [repeated_interval(pair.a, pair.b, rules.family, tuple(rules.looks)) for pair in pairs]
    return intervals(pairs, rules.family, log_ratio)


def pair_of(group: CellRuns, partner: CellRuns, ours: ValuesOfBlocks, theirs: ValuesOfBlocks) -> Pair:
    """Return values of two cells as a pair whose pool is the kind of hardware of both."""
    return Pair(ours, theirs, (group.cell, partner.cell), (group.hardware, partner.hardware))


def _comparison(
    group: CellRuns, partner: CellRuns, interval: Interval, uneven: Doubt | None, rules: Rules
) -> Comparison:
    ratio, paired = exponential_estimate(interval, "1", rules.family), pairs_up(group.log_rates, partner.log_rates)
    decision, reason = _decided(group, partner, ratio, rules.threshold)
    doubts = (build_doubt(group, partner), None if paired else _unpaired(group, partner), uneven)
    found = tuple(doubt for doubt in doubts if doubt is not None)
    return Comparison(Speedup(ratio=ratio, paired=paired), decision, reason, partner, found)


def _decided(group: CellRuns, partner: CellRuns, ratio: Estimate, threshold: float) -> tuple[Verdict, str]:
    """Return the verdict that the interval supports, unless the machine or the number of blocks forbids any."""
    for side, whose in ((group, "its own"), (partner, "those of the other side")):
        if (found := disturbance(side)) is not None:
            return Verdict.disturbed, f"{whose} runs were disturbed: {found}"
    if apart(group, partner):
        fewest = min(len(group.log_rates), len(partner.log_rates))
        if fewest < FEWEST_APART:
            return Verdict.not_yet, f"a verdict across hardware needs {FEWEST_APART} blocks of each side, not {fewest}"
        return verdict(ratio, threshold, group.rate_metric)
    if not pairs_up(group.log_rates, partner.log_rates):
        shared = len(group.blocks & partner.blocks)
        return Verdict.not_yet, f"a verdict needs 3 blocks that hold both sides, and there are {shared}"
    return verdict(ratio, threshold, group.rate_metric)


def apart(group: CellRuns, partner: CellRuns) -> bool:
    """Return whether the two sides ran on unlike nodes, which no block can hold together."""
    return group.hardware != partner.hardware and not group.blocks & partner.blocks


def own_rate(group: CellRuns, confidence: float) -> Estimate | None:
    """Return the geometric mean of a cell's rates with an interval of its own, which belongs to no family; or None."""
    if not group.rated:
        return None
    alone = Family(1, confidence)
    interval = of_size(group, t_interval(list(group.log_rates.values()), alone))
    return exponential_estimate(interval, group.rate_unit, alone)


def over(partner: CellRuns, rate: float, block: str | None) -> float | None:
    """Return a rate over the partner's in that block, or over its mean where it has none there; None without rates."""
    logs = partner.log_rates
    if not logs:
        return None
    return math.exp(math.log(rate) - logs.get(block or "", fmean(logs.values())))


def endings(group: CellRuns) -> str:
    """Return how the runs of a cell without a rate ended: `3 of 3 runs: out_of_memory (cannot allocate ...)`."""
    if group.planned.unsupported is not None:
        return f"unsupported: {group.planned.unsupported}"
    outcomes = [outcome for outcome in Outcome if any(run.outcome is outcome for run in group.runs)]
    parts = []
    for outcome in outcomes:
        ended = [run for run in group.runs if run.outcome is outcome]
        reasons = (run.reason or _why_no_rate(run, group.rate_metric) for run in ended)
        reason = next((reason for reason in reasons if reason), "no rate was recorded")
        parts.append(f"{len(ended)} of {len(group.runs)} runs: {outcome} ({reason})")
    return "; ".join(parts) if parts else "no run is planned"


def _why_no_rate(run: RunRow, metric: str) -> str | None:
    return run.metrics[metric].reason if metric in run.metrics else None


def _no_baseline(baselines: Sequence[CellRuns]) -> str:
    if not baselines:
        return "the plan names no baseline to compare with"
    return f"the baseline was not measured: {endings(baselines[0])}"


def _partner(group: CellRuns, baselines: Sequence[CellRuns], rules: Rules) -> tuple[CellRuns, str | None]:
    """Return the comparable baseline that shares most blocks with the cell; without one, the reason why not."""
    refusals = [difference(group, base, rules.axes, rules.across) for base in baselines]
    comparable = [base for base, refusal in zip(baselines, refusals, strict=True) if refusal is None]
    if not comparable:
        return baselines[0], refusals[0]
    return max(comparable, key=lambda base: len(group.blocks & base.blocks)), None


def _unpaired(group: CellRuns, partner: CellRuns) -> Doubt:
    if apart(group, partner):
        ours, theirs = (len({run.machine for run in side.rated}) for side in (group, partner))
        others = "one node tells nothing of the others of its kind" if 1 in (ours, theirs) else "other nodes may differ"
        return Doubt(
            code="unlike_nodes",
            message=f"measured on {count_of(ours, 'node')} of one kind, the baseline on {count_of(theirs, 'node')} of "
            f"another; the interval rests on blocks and holds for these nodes: {others}",
            remedy="let more repeats run on more nodes of each kind: nodes of one kind differ, too",
        )
    shared = len(group.blocks & partner.blocks)
    return Doubt(
        code="unpaired",
        message=f"blocks that hold this setting and the baseline: {shared}; differences between blocks are not removed",
        remedy="measure both in 3 or more common blocks: raise repeats, or run the same command with --add-repeats 3",
    )
