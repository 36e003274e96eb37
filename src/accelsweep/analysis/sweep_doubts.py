"""Detects doubts about a setting or a sweep that become apparent only when many runs are considered together.

Each doubt states its evidence and a remedy. A test that always fires is useless, so the false-alarm rate of each test
in this module is simulated in tests/analysis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from statistics import median, quantiles

import scipy

from accelsweep import registry
from accelsweep.analysis.intervals import MIN_PAIRS, mean
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.analysis.simultaneous_intervals import Pair, pools
from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.results import Doubt, Outcome
from accelsweep.run_environment import HardwareKind
from accelsweep.significant_digits import count_of

NOISE_TEST_LEVEL = 0.01
"""The probability that a noise test fires anywhere in a sweep with normal noise of equal variance."""

MIN_BLOCKS_FOR_LEVELS = 4

REPEATS_FOR_PUBLISHING = 5

DRIFT_LEVEL = 0.01
"""The probability of a false drift alarm in a sweep."""

MIN_BLOCKS_FOR_DRIFT = 4

MIN_RUNS_FOR_OUTLIERS = 12

OUTER_FENCE = 3.0
"""Tukey's fence for "far out" values, in interquartile ranges ("Exploratory Data Analysis", 1977)."""


def setting_doubts(group: SettingRuns, outlying: Collection[str], overlapping: Collection[str]) -> list[Doubt]:
    """Return the doubts about one setting.

    Doubts about individual runs, merged by code, precede those about all runs together.
    """
    found = []
    run_doubts = sorted((doubt for run in group.measured for doubt in run.doubts), key=lambda doubt: doubt.code)
    measured, rated = len(group.measured), len(group.rated)
    for code, (first, *_) in groupby(run_doubts, key=lambda doubt: doubt.code):
        runs = sum(any(doubt.code == code for doubt in run.doubts) for run in group.measured)
        message = f"{runs} of {measured} runs: {first.message}"
        found.append(Doubt(code=code, message=message, remedy=first.remedy))
    planned = sum(run.outcome is not Outcome.decided for run in group.runs)
    if 0 < measured < planned:
        message = f"{measured} of {planned} planned repeats were measured; the others are not missing at random"
        remedy = "check why the runs failed, then run again"
        found.append(Doubt(code="missing_repeats", message=message, remedy=remedy))
    if 0 < rated < measured and group.rate_metric == "results_per_hour":
        message = f"{rated} of {measured} measured repeats reached the target; the mean time excludes the others"
        remedy = "raise measure.max_samples, or report that the setting often misses the target"
        found.append(Doubt(code="target_missed", message=message, remedy=remedy))
    for feature_doubts in registry.loaded("setting_doubts"):
        found += feature_doubts(group)
    threads = sorted({run.effective.threads_per_rank for run in group.measured if run.effective})
    if len(threads) > 1:
        counts = " and ".join(map(str, threads))
        message = f"its repeats had {counts} CPU threads per rank, so they are not equivalent"
        remedy = "set `threads`, or measure all repeats again with the same number of cores"
        found.append(Doubt(code="threads_differ", message=message, remedy=remedy))
    if outliers := [str(run.repeat) for run in group.measured if run.run in outlying]:
        which = f"repeat {outliers[0]} is" if len(outliers) == 1 else f"repeats {', '.join(outliers)} are"
        message = f"{which} farther from the setting's mean than noise can explain; no repeat was excluded"
        found.append(
            Doubt(code="outlier", message=message, remedy="check its log, and its environment before and after")
        )
    if shared := sum(run.run in overlapping for run in group.measured):
        message = f"{shared} of {measured} runs were timed while another run of this sweep used the same machine"
        remedy = "time one run per machine (measure.concurrency=1)"
        found.append(Doubt(code="shared_timing", message=message, remedy=remedy))
    return found


def sweep_doubts(
    groups: Sequence[SettingRuns], baseline: str | None, repeats: int, *, compares_nodes: bool = False
) -> list[Doubt]:
    """Return the doubts about the whole sweep.

    The use of several machines is not flagged if `compares_nodes` is set, because the sweep then compares them.
    """
    found = []
    if repeats < REPEATS_FOR_PUBLISHING and any(group.measured for group in groups):
        enough = f"{count_of(repeats, 'repeat')} per setting {'is' if repeats == 1 else 'are'} enough for a first look"
        message = f"{enough}; do not publish with fewer than {REPEATS_FOR_PUBLISHING}"
        remedy = f"raise repeats, or run the same command with --add-repeats {REPEATS_FOR_PUBLISHING - repeats}"
        found.append(Doubt(code="few_repeats", message=message, remedy=remedy))
    drifts = [drift(group) for group in groups if group.setting == baseline]
    found += [doubt for doubt in drifts if doubt is not None]
    found += noisy_baseline(groups, baseline)
    found += float32_baseline(groups, baseline)
    hosts = sorted({host for group in groups for run in group.measured if (host := run.host)})
    if len(hosts) > 1 and not compares_nodes:
        where = f"{len(hosts)} machines ({', '.join(hosts)})"
        message = f"runs were measured on {where}: rates differ by machine, paired speed-ups do not"
        remedy = "compare speed-ups rather than rates, or restrict the site to one machine"
        found.append(Doubt(code="mixed_hosts", message=message, remedy=remedy))
    return found


def float32_baseline(groups: Iterable[SettingRuns], baseline: str | None) -> list[Doubt]:
    """Return a doubt if precisions are compared with a 32-bit baseline without TF32, on a device that has TF32.

    Much of such a speed-up is available to the baseline as well, at the cost of one line of code.
    """
    effective = {
        group.setting: run.effective for group in groups for run in group.measured if run.effective is not None
    }
    own = effective.get(baseline or "")
    if own is None or own.precision != "32-true" or own.matmul_precision != "highest":
        return []
    if not own.device_names or datasheet_flops_per_second(own.device_names[0], "tf32") is None:
        return []
    others = sorted({each.precision for each in effective.values()} - {"32-true", "64-true"})
    if not others:
        return []
    return [
        Doubt(
            code="float32_baseline",
            message=(
                f"the baseline multiplies matrices in float32, although {own.device_names[0]} has TF32: part of the "
                f"speed-up of {' and '.join(others)} is available to it as well"
            ),
            remedy="add matmul_precision=highest,high to the command",
        )
    ]


def drift(baseline: SettingRuns) -> Doubt | None:
    """Return a doubt if the baseline's rate drifted from block to block.

    This is a two-sided t-test, at `DRIFT_LEVEL`, of the least-squares slope of the log rate against the chronological
    block order.
    """
    starts = {run.block: run.started_at or "" for run in reversed(baseline.measured)}
    in_time = sorted(baseline.log_rates.items(), key=lambda item: (starts[item[0]], item[0]))
    rates, count = [rate for _, rate in in_time], len(in_time)
    if count < MIN_BLOCKS_FOR_DRIFT:
        return None
    steps = [index - (count - 1) / 2 for index in range(count)]
    center, squares = mean(rates), math.fsum(step**2 for step in steps)
    slope = math.fsum(step * rate for step, rate in zip(steps, rates, strict=True)) / squares
    rest = math.fsum((rate - center - slope * step) ** 2 for step, rate in zip(steps, rates, strict=True))
    error = math.sqrt(rest / (count - 2) / squares)
    if error == 0.0 or abs(slope) / error <= scipy.special.stdtrit(count - 2, 1.0 - DRIFT_LEVEL / 2.0):
        return None
    change = math.expm1(slope * (count - 1))
    return Doubt(
        code="baseline_drift",
        message=f"the baseline's rate changed by {change:+.1%} from the first block to the last ({count} blocks)",
        remedy="let the machine reach a steady temperature and stop other work; paired speed-ups are hardly affected",
    )


def outlying_runs(groups: Iterable[SettingRuns]) -> frozenset[str]:
    """Return the names of runs far outside Tukey's fences.

    Such runs are flagged, never dropped. The fences apply to the log rates' deviations from their settings' means, over
    all settings on identical devices with 3 or more runs, because the few runs of one setting cannot distinguish a long
    tail from an outlier.
    """
    by_devices: dict[tuple[HardwareKind, int | None], dict[str, float]] = {}
    for group in groups:
        if len(group.rated) >= 3:
            logs = {run.run or "": math.log(group.rate(run) or math.nan) for run in group.rated}
            center = mean(list(logs.values()))
            pool = by_devices.setdefault((group.hardware, group.world_size), {})
            pool.update({run: value - center for run, value in logs.items()})
    found: set[str] = set()
    for distances in by_devices.values():
        if len(distances) >= MIN_RUNS_FOR_OUTLIERS:
            low, _, high = quantiles(distances.values(), n=4, method="inclusive")
            reach = OUTER_FENCE * (high - low)
            found |= {run for run, distance in distances.items() if not low - reach <= distance <= high + reach}
    return frozenset(found)


def overlapping_runs(runs: Iterable[RunRow]) -> frozenset[str]:
    """Return the names of runs that overlap in time on the same machine."""
    spans = sorted(
        (run.host, datetime.fromisoformat(run.started_at), datetime.fromisoformat(run.finished_at), run.run or "")
        for run in runs
        if run.host and run.started_at and run.finished_at
    )
    found: set[str] = set()
    latest: tuple[str, datetime, str] | None = None
    for host, start, end, name in spans:
        if latest is not None and latest[0] == host and start < latest[1]:
            found |= {latest[2], name}
        if latest is None or latest[0] != host or end > latest[1]:
            latest = (host, end, name)
    return frozenset(found)


# Doubts about the noise itself: a setting much noisier than the others, a noisy baseline, or a setting with two levels.


def uneven_noise(pairs: Sequence[Pair], family: int) -> list[Doubt | None]:
    """Return one entry per pair: a doubt if its differences are much noisier than is typical of its pool, else None.

    This is Fisher's F-test of the ratio of the pair's variance to the pool's prior variance, at `NOISE_TEST_LEVEL`
    divided among `family` pairs.
    """
    found: list[Doubt | None] = [None] * len(pairs)
    for pool in pools(pairs):
        usual, total = float(pool.moderated.prior), sum(pool.counts) - len(pool.counts)
        for index, own, count in zip(pool.members, pool.variances, pool.counts, strict=True):
            if own / usual > scipy.special.fdtri(count - 1, total, 1.0 - NOISE_TEST_LEVEL / max(family, 1)):
                times = math.sqrt(own / usual)
                message = f"its ratio varies {times:.1f} times as much from block to block as is typical of this sweep"
                remedy = "check the doubts and environments of its runs; longer windows or more blocks compensate"
                found[index] = Doubt(code="uneven_noise", message=message, remedy=remedy)
    return found


def noisy_baseline(groups: Sequence[SettingRuns], baseline: str | None) -> list[Doubt]:
    """Return a doubt for each kind of hardware on which the baseline is noisier than the other settings.

    This is Fisher's F-test of two variances: that of the baseline's distance from the mean of the other settings in its
    block, and that of the other settings about their setting and block effects (two-way residuals, excluding the
    baseline). For normal noise of equal variance, the two are independent, so the test is exact. It requires at least
    two other settings that share at least 3 blocks with the baseline. If the baseline runs several times in a block,
    the mean of those runs is tested, because every ratio uses that mean; the test then fires less often.
    """
    found = []
    for base in (group for group in groups if group.setting == baseline and group.rated):
        others = [group for group in groups if group.setting != baseline and group.rated]
        ratio, own, rest = _variance_ratio(base, [group for group in others if group.hardware == base.hardware])
        if rest and ratio > scipy.special.fdtri(own, rest, 1.0 - NOISE_TEST_LEVEL):
            message = (
                f"the baseline varies {math.sqrt(ratio):.1f} times as much as the other settings, and every ratio "
                "inherits its noise"
            )
            remedy = (
                "stop other work on the machine, add blocks with a higher block.baseline_runs, or choose a quieter "
                "setting as the baseline"
            )
            found.append(Doubt(code="noisy_baseline", message=message, remedy=remedy))
    return found


def _variance_ratio(base: SettingRuns, others: Sequence[SettingRuns]) -> tuple[float, int, int]:
    """Return the ratio of the two variances and the degrees of freedom of the numerator and the denominator."""
    above = below = 0.0
    own = rest = 0
    for settings in _complete_tables(base, others):
        blocks = sorted(settings[0].keys())
        means = {block: mean([setting[block] for setting in settings[1:]]) for block in blocks}
        distances = [settings[0][block] - means[block] for block in blocks]
        above += _squares(distances) / (1.0 + 1.0 / (len(settings) - 1))
        below += math.fsum(_squares([setting[block] - means[block] for block in blocks]) for setting in settings[1:])
        own += len(blocks) - 1
        rest += (len(blocks) - 1) * (len(settings) - 2)
    return (above / own) / (below / rest) if below > 0.0 else 0.0, own, rest if below > 0.0 else 0


def _squares(values: Sequence[float]) -> float:
    center = mean(values)
    return math.fsum((value - center) ** 2 for value in values)


def _complete_tables(base: SettingRuns, others: Sequence[SettingRuns]) -> Iterator[list[Mapping[str, float]]]:
    """Yield complete, disjoint tables of log rates by setting and block, with the baseline first.

    If the settings are divided into chunks, one per block, each chunk forms its own table. Settings that are missing
    from a block are left out.
    """
    sharing: dict[frozenset[str], list[SettingRuns]] = {}
    for group in others:
        sharing.setdefault(group.blocks & base.blocks, []).append(group)
    used: set[str] = set()
    for blocks, settings in sorted(sharing.items(), key=lambda item: (-len(item[0]) * len(item[1]), sorted(item[0]))):
        if len(blocks) >= MIN_PAIRS and len(settings) >= 2 and not blocks & used:
            used |= blocks
            yield [{block: group.log_rates[block] for block in blocks} for group in (base, *settings)]


def two_levels(groups: Sequence[SettingRuns]) -> list[Doubt | None]:
    """Return one entry per setting: a doubt if its rates form two widely separated levels, else None.

    Each block's effect, which is the median over all settings in the block, is first removed from the rates.
    """
    distances: dict[str, list[float]] = {}
    for group in groups:
        center = mean(list(group.log_rates.values())) if group.rated else 0.0
        for block, value in group.log_rates.items():
            distances.setdefault(block, []).append(value - center)
    effects = {block: median(values) for block, values in distances.items()}
    rows = [
        sorted(value - effects[block] for block, value in group.log_rates.items())
        if len(group.log_rates) >= MIN_BLOCKS_FOR_LEVELS
        else []
        for group in groups
    ]
    tested = sum(bool(row) for row in rows)
    return [
        _levels_doubt(row) if row and two_cluster_p_value(row) * tested < NOISE_TEST_LEVEL else None for row in rows
    ]


def two_cluster_p_value(ordered: Sequence[float]) -> float:
    """Return a bound on the probability that 4 or more ordered normal values split into two clusters this clearly.

    This is the test of L. Engelman and J. Hartigan, "Percentage Points of a Test for Clusters" (JASA 1969): the largest
    ratio, over all splits, of the sum of squares between two clusters to that within them. For a given split, the
    statistic follows Student's t-distribution, so Bonferroni's inequality over the partitions bounds the probability
    without a table. Each cluster must contain at least two values and a fifth of all values, because a single value is
    an outlier, not a level.
    """
    count, sizes = len(ordered), _cluster_sizes(len(ordered))
    partitions = sum(math.comb(count, size) for size in sizes) / 2.0
    largest = max(_split_t(ordered, size) for size in sizes)
    return float(min(1.0, 2.0 * partitions * scipy.special.stdtr(count - 2, -largest)))


def _cluster_sizes(count: int) -> range:
    least = max(2, math.ceil(count / 5))
    return range(least, count - least + 1)


def _split_t(ordered: Sequence[float], size: int) -> float:
    """Return Student's t for the difference between the first `size` values and the rest."""
    low, high = ordered[:size], ordered[size:]
    within = (_squares(low) + _squares(high)) / (len(ordered) - 2)
    return (mean(high) - mean(low)) / math.sqrt(within * (1.0 / len(low) + 1.0 / len(high))) if within > 0.0 else 0.0


def _levels_doubt(ordered: Sequence[float]) -> Doubt:
    count = len(ordered)
    size = max(_cluster_sizes(count), key=lambda size: _split_t(ordered, size))
    apart = math.expm1(mean(ordered[size:]) - mean(ordered[:size]))
    return Doubt(
        code="two_levels",
        message=f"its rate has two levels, {apart:.1%} apart: {size} blocks at the lower, {count - size} at the upper",
        remedy="find the cause (cores, clocks, memory placement); the mean and interval describe neither level",
    )
