"""The noise of a sweep's first 3 blocks, and the number of blocks that `repeats: auto` then takes in all."""

from __future__ import annotations

from collections.abc import Iterable

from accelsweep.analyse.collected.runs import CellRuns, RunRow, group, in_order
from accelsweep.analyse.findings.against_baseline import Rules, against_baseline, pair_of
from accelsweep.analyse.statistics.intervals import Family, paired_interval, variance
from accelsweep.analyse.statistics.pools import Pair, pools
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.planned.settings import PILOT
from accelsweep.repeats.resolution import Needed, PairNoise, repeats_for


def repeats_from_pilot(runs: Iterable[RunRow], manifest: Manifest, resolution: float, most: int) -> Needed | None:
    """Return how many blocks the sweep needs in all, from the runs that `collect` found.

    The first 3 shared blocks of each comparison count, in the manifest's order. So the answer stays when more blocks
    are measured. It does not depend on the ratios. None where no comparison has 3 shared blocks with some spread.
    `resolution` and `most` as in `repeats.resolution.repeats_for`, which raises ValueError for impossible ones.
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
