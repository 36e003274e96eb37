"""Decides which settings are so much slower than the baseline that further repeats of them are not worth the time.

Settings that have lost drop out of the race: O. Maron and A. Moore, "Hoeffding Races" (NIPS 1993). The decisions must
hold together with the verdicts on all other settings, so they spend a fifth of the sweep's error. Looks after 2, 3, 4,
... blocks spend 1/2, 1/6, 1/12, ... of that: the sum of 1 / (b (b - 1)) over all b >= 2 is 1, however many blocks there
are. benchmarks/coverage.py simulates the coverage that is left.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean

import numpy as np

from accelsweep.analysis.baseline_comparison import Rules, compare_with_baseline, disturbance, make_pair
from accelsweep.analysis.intervals import Family, Interval, exponential_estimate, mean, variance
from accelsweep.analysis.run_results import RunRow, SettingRuns, group_runs, sorted_runs
from accelsweep.analysis.simultaneous_intervals import Pair, half_widths
from accelsweep.records.early_decisions import MIN_BLOCKS, EarlyDecision
from accelsweep.records.plan import Manifest

MUCH_SLOWER = 0.8
"""A setting is left out if the interval of its ratio to the baseline lies below this."""

ERROR_SHARE = 0.2
"""The share of the sweep's error that all early decisions together may spend."""

_RATE_DOUBTS = frozenset({"stall", "unsteady_window", "no_steps"})
"""Doubts about a rate, besides disturbances: a setting in doubt is not left out."""


def early_decisions_on(runs: Sequence[RunRow], manifest: Manifest) -> dict[str, EarlyDecision]:
    """Return the decisions that the runs of the finished blocks support, keyed by setting."""
    groups = group_runs(manifest, sorted_runs(runs))
    rules = Rules.of(manifest, groups)
    contests = []
    for group, comparison in zip(groups, compare_with_baseline(groups, manifest, rules), strict=True):
        partner = comparison.partner
        if partner is not None and partner is not group and not _is_doubtful(group) and not disturbance(partner):
            contests.append((group, make_pair(group, partner, group.log_rates, partner.log_rates)))
    intervals = race([pair for _, pair in contests], rules.family)
    decisions = {}
    for index, interval in intervals.items():
        group, pair = contests[index]
        ratio = exponential_estimate(interval, "1", _family_at(rules.family, interval.count))
        if ratio.high is not None and ratio.high < MUCH_SLOWER:
            blocks = tuple(sorted(block for block in pair.a if block in pair.b))
            seconds = fmean(run.wall_seconds or 0.0 for run in group.measured)
            decisions[group.setting] = EarlyDecision(blocks=blocks, ratio=ratio, run_seconds=seconds)
    return decisions


def race(pairs: Sequence[Pair], family: Family) -> Mapping[int, Interval]:
    """Return intervals for the mean differences of pairs with two or more common keys, by their index.

    `family` is that of all verdicts of the sweep. All intervals hold simultaneously, at any number of common keys.
    """
    pools: dict[tuple[Hashable, int], list[int]] = {}
    for index, pair in enumerate(pairs):
        if len(pair.differences) >= MIN_BLOCKS and variance(pair.differences) > 0.0:
            pools.setdefault((pair.kind, len(pair.differences)), []).append(index)
    found = {}
    for (_, count), members in pools.items():
        if len(members) < 2:
            continue
        variances = np.array([variance(pairs[index].differences) for index in members])
        settings = {name for index in members for name in pairs[index].names}
        each = _family_at(family, count).each
        widths = half_widths(variances, np.full(len(members), count), len(settings), each, family.confidence)
        for index, width in zip(members, widths, strict=True):
            found[index] = Interval(mean(pairs[index].differences), float(width), count)
    return found


def _family_at(family: Family, blocks: int) -> Family:
    """Return the family whose intervals spend what may be spent at the look after this many blocks."""
    error = (1.0 - family.confidence) * ERROR_SHARE / (blocks * (blocks - 1))
    return Family(family.size, 1.0 - error)


def _is_doubtful(group: SettingRuns) -> bool:
    return any(doubt.disturbing or doubt.code in _RATE_DOUBTS for run in group.rated for doubt in run.doubts)
