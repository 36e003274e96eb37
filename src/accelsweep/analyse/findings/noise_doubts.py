"""Doubts about the noise itself: a row that is far noisier than the others, a noisy baseline, a row with two levels.

These doubts catch noise that breaks the moderated interval. Each is a test at 1 % of the sweeps whose noise is normal
and equal (Bonferroni over the rows). False alarms and detections are simulated in tests/analyse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from scipy import special

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.statistics.intervals import FEWEST_PAIRS, mean
from accelsweep.analyse.statistics.pools import Pair, pools
from accelsweep.core.recorded.record import Doubt

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
                found[index] = _uneven(math.sqrt(own / usual))
    return found


def _uneven(times: float) -> Doubt:
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
