"""The estimates of a plan: minutes, GPU-hours, dollars, and the smallest visible effect."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from accelsweep.core.cell import Cell
from accelsweep.core.plans import Run
from accelsweep.core.settings import Settings
from accelsweep.plan.blocks.power import smallest_visible_effect
from accelsweep.plan.make import Plan
from accelsweep.plan.prices import usd_per_hour

ASSUMED_NOISE = 0.01
"""Standard deviation of a run's log rate, assumed until runs show it; it is printed beside each such estimate."""

POWER = 0.8


@dataclass(frozen=True)
class PlanEstimate:
    """The time of the runs that are left, one after another: at least, and at most by their time limits.

    `basis` states the source of the lower figures. `usd` is (at least, at most), or None with `usd_reason`.
    """

    runs_left: int
    minutes: tuple[float, float]
    gpu_hours: tuple[float, float]
    usd: tuple[float, float] | None
    usd_reason: str | None
    basis: str


@dataclass(frozen=True)
class VisibleEffect:
    """The smallest true gain in rate that is found with a chance of 80 %, None with a `reason`, and its assumption."""

    effect: float | None
    assumption: str
    reason: str | None = None


def estimate(
    plan: Plan, settled: Collection[str] = (), wall_seconds: Mapping[str, Sequence[float]] | None = None
) -> PlanEstimate:
    """Return the estimate for the wanted runs that are not among the `settled` ones.

    `wall_seconds` maps cell names to the seconds that earlier runs of them took, start and end included.
    """
    cells = {cell.name: cell for cell in plan.cells}
    left = [cells[Run.parse(run).cell] for run in plan.manifest.wanted_runs() if run not in settled]
    limits = plan.manifest.settings.limits
    seen = {name: fmean(seconds) for name, seconds in (wall_seconds or {}).items() if seconds}
    least = [_least_seconds(cell, seen) for cell in left]
    most = [max(low, limits.run_seconds + limits.stop_grace_seconds) for low in least]
    gpus = [cell.config.world_size * cell.config.on_gpu for cell in left]
    prices = [usd_per_hour(plan.manifest.settings.prices, cell.config, plan.manifest.site) for cell in left]
    known = [price for price in prices if price is not None]
    return PlanEstimate(
        runs_left=len(left),
        minutes=(sum(least) / 60, sum(most) / 60),
        gpu_hours=(_hours(least, gpus), _hours(most, gpus)),
        usd=(_hours(least, known), _hours(most, known)) if left and len(known) == len(left) else None,
        usd_reason=_why_no_cost(plan, left, prices),
        basis="earlier runs of this sweep" if seen else "measuring windows alone, without start-up",
    )


def _least_seconds(cell: Cell, seen: Mapping[str, float]) -> float:
    if cell.name in seen:
        return seen[cell.name]
    return max(median(seen.values()) if seen else 0.0, cell.config.measure.min_seconds)


def _hours(seconds: Sequence[float], weights: Sequence[float]) -> float:
    return sum(each * weight for each, weight in zip(seconds, weights, strict=True)) / 3600


def _why_no_cost(plan: Plan, left: Sequence[Cell], prices: Sequence[float | None]) -> str | None:
    unpriced = sorted({cell.config.accelerator for cell, price in zip(left, prices, strict=True) if price is None})
    if not unpriced:
        return None if left else "no run is left"
    if not plan.manifest.settings.prices.raw:
        return "no prices are given"
    return f"no price is given for {' and '.join(unpriced)}"


def visible_effect(plan: Plan, noise: float | None = None) -> VisibleEffect:
    """Return the smallest effect that this plan's number of repeats can show.

    `noise` is the standard deviation of a run's log rate as earlier runs showed it, pooled over pairs. None assumes
    `ASSUMED_NOISE`. Then the mean of several runs of the baseline in a block is quieter than one run.
    """
    settings: Settings = plan.manifest.settings
    family = sum(cell.unsupported is None for cell in plan.cells) - 1
    spread = ASSUMED_NOISE if noise is None else noise
    paired = spread if noise is not None else spread * math.sqrt((1.0 + 1.0 / _baseline_runs(plan)) / 2.0)
    source = "assumed" if noise is None else "seen in earlier runs"
    assumption = f"{spread:.1%} noise between runs ({source}), {max(family, 0)} comparisons, {POWER:.0%} chance"
    if family < 1:
        return VisibleEffect(None, assumption, "there is no other setting to compare the baseline with")
    effect = smallest_visible_effect(
        settings.repeats,
        paired,
        family=family,
        confidence=settings.analysis.confidence,
        threshold=settings.analysis.threshold,
        power=POWER,
    )
    return VisibleEffect(effect, assumption, None if effect is not None else "one repeat gives no interval")


def _baseline_runs(plan: Plan) -> int:
    """Return how often the baseline runs in the blocks where it runs least often beside other cells; at least 1."""
    cells = [[Run.parse(run).cell for run in block.runs] for block in plan.manifest.blocks]
    return min(
        (found for block in cells if 0 < (found := block.count(plan.manifest.baseline or "")) < len(block)), default=1
    )
