"""Doubts that only show when many runs are seen together. Each states its evidence and a remedy.

A doubt that always fires is worthless: the false-alarm rate of each test here is simulated in tests/analyse.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from statistics import quantiles

from scipy import special

from accelsweep.analysis.intervals import FEWEST_PAIRS, mean
from accelsweep.analysis.run_results import CellRuns, RunRow, ranks
from accelsweep.analysis.simultaneous_intervals import Pair, pools
from accelsweep.records.run_environment import HardwareKind
from accelsweep.records.run_record import Doubt

# Doubts about the noise itself: a row that is far noisier than the others, a noisy baseline, a row with two levels.

LEVEL = 0.01
"""Chance that a test fires anywhere in a sweep whose noise is normal and equal."""

FEWEST_BLOCKS_FOR_LEVELS = 4


def uneven_noise(pairs: Sequence[Pair], family: int) -> list[Doubt | None]:
    """Return, for each pair, the doubt that its differences are far noisier than is usual in its pool, or None.

    The row's variance over the pool's prior variance against Fisher's F, at `LEVEL` shared by `family` rows.
    """
    found: list[Doubt | None] = [None] * len(pairs)
    for pool in pools(pairs):
        usual, total = float(pool.moderated.prior), sum(pool.counts) - len(pool.counts)
        for index, own, count in zip(pool.members, pool.variances, pool.counts, strict=True):
            if own / usual > special.fdtri(count - 1, total, 1.0 - LEVEL / max(family, 1)):
                found[index] = _uneven_row(math.sqrt(own / usual))
    return found


def _uneven_row(times: float) -> Doubt:
    return Doubt(
        code="uneven_noise",
        message=f"its ratio varies {times:.1f} times as much from block to block as is usual in this sweep",
        remedy="read the doubts and environments of its runs; longer windows or more blocks make up for noise",
    )


def noisy_baseline(groups: Sequence[CellRuns], baseline: str | None) -> list[Doubt]:
    """Return the doubt that the baseline is noisier than the other cells, for each kind of hardware where it is.

    Fisher's F of two variances. One is that of the baseline's distance to the mean of the others in its block. The
    other is that of the others about their cells and blocks (two-way residuals, without the baseline). For equal normal
    noise they are independent, so the test is exact; it takes two other cells that share 3 blocks with the baseline. A
    baseline that runs several times in a block is judged by their mean, because every ratio uses the mean. The test
    then fires less often.
    """
    found = []
    for base in (one for one in groups if one.cell == baseline and one.rated):
        others = [one for one in groups if one.cell != baseline and one.rated and one.hardware == base.hardware]
        ratio, own, rest = _against_the_others(base, others)
        if rest and ratio > special.fdtri(own, rest, 1.0 - LEVEL):
            found.append(_noisy(math.sqrt(ratio)))
    return found


def _noisy(times: float) -> Doubt:
    return Doubt(
        code="noisy_baseline",
        message=f"the baseline varies {times:.1f} times as much as the other settings, and every ratio has its noise",
        remedy="stop other work on the machine, add blocks with a higher block.baseline_runs, or choose a quieter "
        "setting as the baseline",
    )


def _against_the_others(base: CellRuns, others: Sequence[CellRuns]) -> tuple[float, int, int]:
    """Return the ratio of the two variances, and the degrees of freedom of the upper and of the lower one."""
    above = below = 0.0
    own = rest = 0
    for cells in _complete(base, others):
        blocks = sorted(cells[0].keys())
        means = {block: mean([cell[block] for cell in cells[1:]]) for block in blocks}
        distances = [cells[0][block] - means[block] for block in blocks]
        above += _squares(distances) / (1.0 + 1.0 / (len(cells) - 1))
        below += math.fsum(_squares([cell[block] - means[block] for block in blocks]) for cell in cells[1:])
        own += len(blocks) - 1
        rest += (len(blocks) - 1) * (len(cells) - 2)
    return (above / own) / (below / rest) if below > 0.0 else 0.0, own, rest if below > 0.0 else 0


def _squares(values: Sequence[float]) -> float:
    center = mean(values)
    return math.fsum((value - center) ** 2 for value in values)


def _complete(base: CellRuns, others: Sequence[CellRuns]) -> Iterator[list[Mapping[str, float]]]:
    """Yield tables of log rates, the baseline's first, in which each cell has each block; no block is in two of them.

    Blocks that hold chunks of the cells make one table for each chunk. Cells that lack a block are left out.
    """
    sharing: dict[frozenset[str], list[CellRuns]] = {}
    for one in others:
        sharing.setdefault(one.blocks & base.blocks, []).append(one)
    used: set[str] = set()
    for blocks, cells in sorted(sharing.items(), key=lambda item: (-len(item[0]) * len(item[1]), sorted(item[0]))):
        if len(blocks) >= FEWEST_PAIRS and len(cells) >= 2 and not blocks & used:
            used |= blocks
            yield [{block: one.log_rates[block] for block in blocks} for one in (base, *cells)]


def two_levels(groups: Sequence[CellRuns]) -> list[Doubt | None]:
    """Return, for each row, the doubt that its rates lie at two levels far apart, or None.

    The rates are taken without their blocks' effects, which are medians over all cells of the block.
    """
    effects = _block_effects(groups)
    rows = [
        sorted(value - effects[block] for block, value in one.log_rates.items())
        if len(one.log_rates) >= FEWEST_BLOCKS_FOR_LEVELS
        else []
        for one in groups
    ]
    tested = sum(bool(row) for row in rows)
    return [_levels(row) if row and two_cluster_chance(row) * tested < LEVEL else None for row in rows]


def _block_effects(groups: Sequence[CellRuns]) -> dict[str, float]:
    """Return how far each block's log rates lie above their cells' means: the median over the cells of one machine."""
    found: dict[str, list[float]] = {}
    for one in groups:
        center = mean(list(one.log_rates.values())) if one.rated else 0.0
        for block, value in one.log_rates.items():
            found.setdefault(block, []).append(value - center)
    return {block: _median(sorted(values)) for block, values in found.items()}


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def two_cluster_chance(ordered: Sequence[float]) -> float:
    """Return a bound on the chance that normal values in order, 4 or more, split into two clusters as well as these.

    The test of L. Engelman and J. Hartigan, "Percentage Points of a Test for Clusters" (JASA 1969): the largest ratio
    of the squares between two clusters to those within, over all splits. A given split has Student's t-distribution, so
    that Bonferroni's inequality over the partitions bounds the chance without a table. Each cluster has at least two
    values and a fifth of all, because a lone value is an outlier and no level.
    """
    count = len(ordered)
    sizes = range(_least(count), count - _least(count) + 1)
    partitions = sum(math.comb(count, size) for size in sizes) / 2.0
    return float(min(1.0, 2.0 * partitions * special.stdtr(count - 2, -max(_split(ordered, size) for size in sizes))))


def _least(count: int) -> int:
    return max(2, math.ceil(count / 5))


def _split(ordered: Sequence[float], size: int) -> float:
    """Return Student's t of the difference between the values before and those after the first `size`."""
    low, high = ordered[:size], ordered[size:]
    within = (_squares(low) + _squares(high)) / (len(ordered) - 2)
    apart = mean(high) - mean(low)
    return apart / math.sqrt(within * (1.0 / len(low) + 1.0 / len(high))) if within > 0.0 else 0.0


def _levels(ordered: Sequence[float]) -> Doubt:
    count = len(ordered)
    size = max(range(_least(count), count - _least(count) + 1), key=lambda size: _split(ordered, size))
    apart = math.expm1(mean(ordered[size:]) - mean(ordered[:size]))
    return Doubt(
        code="two_levels",
        message=f"its rate has two levels, {apart:.1%} apart: {size} blocks at the lower, {count - size} at the upper",
        remedy="find the cause (cores, clocks, memory placement); its mean and interval describe neither level",
    )


REPEATS_FOR_PUBLISHING = 5

DRIFT_LEVEL = 0.01
"""Chance of a false drift alarm: one sweep in a hundred."""

FEWEST_BLOCKS_FOR_DRIFT = 4

FEWEST_RUNS_FOR_OUTLIERS = 12

FAR_OUT = 3.0
"""Tukey's fence for values that are "far out", in interquartile ranges ("Exploratory Data Analysis", 1977)."""


def cell_doubts(group: CellRuns, outlying: Collection[str], overlapping: Collection[str]) -> list[Doubt]:
    """Return the doubts of one cell: first those of its single runs, gathered, then those of its runs together."""
    found = gathered(group.measured)
    planned, measured = len(group.runs), len(group.measured)
    if 0 < measured < planned:
        message = f"{measured} of {planned} planned repeats were measured; the others are not missing at random"
        found.append(
            Doubt(code="fewer_repeats", message=message, remedy="see the failed runs' reasons, then run again")
        )
    if 0 < len(group.rated) < measured:
        found.append(_some_without_a_rate(group))
    found += _uneven(group)
    names = [run.run for run in group.measured]
    if strange := [run.repeat for run in group.measured if run.run in outlying]:
        message = f"repeat {_listing(strange)} lies farther from its setting's mean than noise explains; it was kept"
        found.append(Doubt(code="outlier", message=message, remedy="read its log and its environment before and after"))
    if shared := sum(name in overlapping for name in names):
        message = f"{shared} of {measured} runs were timed while another run of this sweep used the same machine"
        found.append(
            Doubt(code="shared_timing", message=message, remedy="time one run per machine (measure.concurrency=1)")
        )
    return found


def _some_without_a_rate(group: CellRuns) -> Doubt:
    rated, measured = len(group.rated), len(group.measured)
    if group.rate_metric == "queries_per_second":
        message = (
            f"{rated} of {measured} measured repeats kept the latency bound at some load; the rate is theirs alone"
        )
        remedy = "raise serving.latency_ms, or report that the setting often keeps the bound at no load"
        return Doubt(code="load_refused", message=message, remedy=remedy)
    message = f"{rated} of {measured} measured repeats reached the target; the mean time leaves out the others"
    remedy = "raise measure.max_samples, or report that the setting often misses the target"
    return Doubt(code="target_missed", message=message, remedy=remedy)


def _uneven(group: CellRuns) -> Iterator[Doubt]:
    """Yield the doubt that repeats had different numbers of CPU threads, if they had."""
    threads = sorted({run.effective.threads_per_rank for run in group.measured if run.effective})
    if len(threads) > 1:
        counts = " and ".join(map(str, threads))
        message = f"its repeats had {counts} CPU threads per rank, so they did not measure the same"
        remedy = "set `threads`, or measure them all again with equal cores"
        yield Doubt(code="threads_differ", message=message, remedy=remedy)


def gathered(runs: Sequence[RunRow]) -> list[Doubt]:
    """Return one doubt per code for the doubts of single runs, saying how many of them have it."""
    found = sorted((doubt for run in runs for doubt in run.doubts), key=lambda doubt: doubt.code)
    return [
        Doubt(code=code, message=f"{_runs_with(code, runs)} of {len(runs)} runs: {first.message}", remedy=first.remedy)
        for code, (first, *_) in ((code, list(group)) for code, group in groupby(found, key=lambda doubt: doubt.code))
    ]


def _runs_with(code: str, runs: Iterable[RunRow]) -> int:
    return sum(any(doubt.code == code for doubt in run.doubts) for run in runs)


def _listing(repeats: Iterable[int | None]) -> str:
    return ", ".join(str(repeat) for repeat in repeats)


def sweep_doubts(
    groups: Sequence[CellRuns], baseline: str | None, repeats: int, *, of_nodes: bool = False
) -> list[Doubt]:
    """Return the doubts that concern the whole sweep; one `of_nodes` compares nodes, so several are no doubt there."""
    found = []
    if repeats < REPEATS_FOR_PUBLISHING and any(group.measured for group in groups):
        message = (
            f"{repeats} repeats per setting are enough to look around; publish nothing below {REPEATS_FOR_PUBLISHING}"
        )
        remedy = f"raise repeats, or run the same command with --add-repeats {REPEATS_FOR_PUBLISHING - repeats}"
        found.append(Doubt(code="few_repeats", message=message, remedy=remedy))
    drifts = [drift(group) for group in groups if group.cell == baseline]
    found += [doubt for doubt in drifts if doubt is not None]
    found += noisy_baseline(groups, baseline)
    hosts = sorted({host for group in groups for run in group.measured if (host := run.host)})
    if len(hosts) > 1 and not of_nodes:
        where = f"{len(hosts)} machines ({', '.join(hosts)})"
        message = f"runs were measured on {where}: rates differ by machine, paired speed-ups do not"
        remedy = "compare speed-ups rather than rates, or keep the site to one machine"
        found.append(Doubt(code="mixed_hosts", message=message, remedy=remedy))
    return found


def drift(baseline: CellRuns) -> Doubt | None:
    """Return the doubt that the baseline became faster or slower from block to block, or None.

    The t-test of the slope of log rate against the blocks' order in time (least squares), two-sided at `DRIFT_LEVEL`.
    """
    starts = {run.block: run.started_at or "" for run in reversed(baseline.measured)}
    rates = [
        baseline.log_rates[block] for block in sorted(baseline.log_rates, key=lambda block: (starts[block], block))
    ]
    count = len(rates)
    if count < FEWEST_BLOCKS_FOR_DRIFT:
        return None
    steps = [index - (count - 1) / 2 for index in range(count)]
    center, squares = mean(rates), math.fsum(step**2 for step in steps)
    slope = math.fsum(step * rate for step, rate in zip(steps, rates, strict=True)) / squares
    rest = math.fsum((rate - center - slope * step) ** 2 for step, rate in zip(steps, rates, strict=True))
    error = math.sqrt(rest / (count - 2) / squares)
    if error == 0.0 or abs(slope) / error <= special.stdtrit(count - 2, 1.0 - DRIFT_LEVEL / 2.0):
        return None
    change = math.expm1(slope * (count - 1))
    return Doubt(
        code="baseline_drift",
        message=f"the baseline's rate changed by {change:+.1%} from the first block to the last ({count} blocks)",
        remedy="let the machine reach a steady temperature and stop other work; paired speed-ups are hardly affected",
    )


def outlying_runs(groups: Iterable[CellRuns]) -> frozenset[str]:
    """Return the names of runs far out of Tukey's fences. They are flagged, never dropped.

    The fences are drawn around the log rates' distances from their cells' means. They use all cells on equal devices
    that have 3 or more runs. The few runs of one cell could not tell a long tail from an outlier.
    """
    pools: dict[tuple[HardwareKind, int | None], dict[str, float]] = {}
    for group in groups:
        if len(group.rated) >= 3:
            logs = {run.run or "": math.log(group.rate(run) or math.nan) for run in group.rated}
            center = mean(list(logs.values()))
            pool = pools.setdefault((group.hardware, ranks(group)), {})
            pool.update({run: value - center for run, value in logs.items()})
    return frozenset(run for pool in pools.values() for run in _far_out(pool))


def _far_out(distances: Mapping[str, float]) -> list[str]:
    if len(distances) < FEWEST_RUNS_FOR_OUTLIERS:
        return []
    low, _, high = quantiles(distances.values(), n=4, method="inclusive")
    reach = FAR_OUT * (high - low)
    return [run for run, distance in distances.items() if not low - reach <= distance <= high + reach]


def overlapping_runs(runs: Iterable[RunRow]) -> frozenset[str]:
    """Return the names of runs whose times overlap on one machine."""
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
