"""The estimates of a plan: minutes, GPU-hours, dollars, and the smallest visible effect."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelsweep.core.cells.cell import Cell
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import PlannedBlock, Run
from accelsweep.core.planned.prices import Prices
from accelsweep.core.planned.settings import Limits, Settings
from accelsweep.core.sites.site import Site
from accelsweep.machine.prices import usd_per_hour_on
from accelsweep.plan.blocks.resources import held_gpus
from accelsweep.plan.estimates.took import ASSUMED_AROUND_SECONDS, Took
from accelsweep.plan.make import Plan
from accelsweep.plan.nodes import serving
from accelsweep.repeats.power import smallest_visible_effect

ASSUMED_NOISE = 0.01
"""Standard deviation of a run's log rate, assumed until runs show it; it is printed beside each such estimate."""

POWER = 0.8

SUBMISSIONS = 2
"""The most submissions of a job by Snakemake: the shipped profiles of clusters say `retries: 1`."""


class Span(NamedTuple):
    """An amount: that of the windows alone, the one to reckon with, and what time limits and second tries allow."""

    least: float
    expected: float
    most: float


@dataclass(frozen=True)
class PlanEstimate:
    """The time of the runs that are left, one after another. Expected minutes hold the breaks, too.

    GPU-hours and dollars are of what is held: a run's devices on one machine, on a cluster all that a job keeps from
    others. At most each run of a machine is tried as often as `limits.retries` allows, and takes its whole time limit
    each time. At most a job is submitted twice, and lasts as long as its time limit. A job that a cluster itself
    queues again, because a node was lost or others came first, is not counted twice.

    `basis` states the source of the expected figures. `usd` is None with `usd_reason`.
    """

    runs_left: int
    minutes: Span
    gpu_hours: Span
    usd: Span | None
    usd_reason: str | None
    basis: str


@dataclass(frozen=True)
class VisibleEffect:
    """The smallest true gain in rate that is found with a chance of 80 %, None with a `reason`, and its assumption."""

    effect: float | None
    assumption: str
    reason: str | None = None


def estimate(plan: Plan, settled: Collection[str] = (), took: Took | None = None) -> PlanEstimate:
    """Return the estimate for the wanted runs that are not among the `settled` ones.

    `took` is the time that earlier runs took, start and end included.
    """
    cells, took = {cell.name: cell for cell in plan.cells}, took or Took()
    blocks = {
        block: tuple(cells[Run.parse(run).cell] for run in block.runs if run not in settled)
        for block in plan.manifest.blocks
    }
    left = [cell for runs in blocks.values() for cell in runs]
    begun = sum(map(bool, blocks.values()))
    breaks = Span(0.0, begun * took.between_blocks + ASSUMED_AROUND_SECONDS * bool(left), 0.0)
    held = [one for block, runs in blocks.items() if runs for one in _holdings(plan, block, runs, took)]
    priced = [one for one in held if one.usd_per_hour is not None]
    return PlanEstimate(
        runs_left=len(left),
        minutes=Span(*(seconds / 60 for seconds in _sum([breaks, *(one.seconds for one in held)]))),
        gpu_hours=_hours([one.seconds for one in held], [one.gpus for one in held]),
        usd=_hours([one.seconds for one in held], [one.usd_per_hour or 0.0 for one in held])
        if held and len(priced) == len(held)
        else None,
        usd_reason=_why_no_cost(plan, held),
        basis=took.basis,
    )


class _Holding(NamedTuple):
    """A time for which devices are paid: a run's on one machine, a job's on a cluster."""

    seconds: Span
    accelerator: str
    gpus: int
    usd_per_hour: float | None


def _holdings(plan: Plan, block: PlannedBlock, runs: Sequence[Cell], took: Took) -> list[_Holding]:
    """Return what the `runs` that are left of a block hold. A job may last as long as its time limit says."""
    manifest = plan.manifest
    limits, prices, site = manifest.settings.limits, manifest.settings.prices, manifest.site
    each = [_seconds(cell, took, limits) for cell in runs]
    if site.scheduler == "local":
        return [
            _Holding(
                seconds,
                cell.config.accelerator,
                cell.config.world_size * cell.config.on_gpu,
                _usd_per_hour(prices, cell.config, site),
            )
            for seconds, cell in zip(each, runs, strict=True)
        ]
    whole = _sum(each)
    limit = 60.0 * block.resources.minutes if block.resources.minutes else whole.most
    most = max(whole.expected, SUBMISSIONS * limit)
    wide = max(runs, key=lambda cell: (cell.config.on_gpu, cell.config.world_size))
    gpus, usd = held_gpus(block.resources, site), _usd_per_hour(prices, wide.config, site)
    if usd is not None and wide.config.on_gpu:
        usd *= gpus / wide.config.world_size
    return [_Holding(whole._replace(most=most), wide.config.accelerator, gpus, usd)]


def _sum(spans: Sequence[Span]) -> Span:
    return Span(*map(sum, zip(*spans, strict=True))) if spans else Span(0.0, 0.0, 0.0)


def _seconds(cell: Cell, took: Took, limits: Limits) -> Span:
    """Return the seconds of one run. One that was seen to take less than its window takes no more at least."""
    expected = took.seconds(cell.name, cell.config)
    most = max(expected, (1 + limits.retries) * (limits.run_seconds + limits.stop_grace_seconds))
    return Span(min(expected, cell.config.measure.min_seconds), expected, most)


def _hours(seconds: Sequence[Span], weights: Sequence[float]) -> Span:
    weighted = [[part * weight for part in each] for each, weight in zip(seconds, weights, strict=True)]
    return Span(*(sum(column) / 3600 for column in zip(*weighted, strict=True))) if weighted else Span(0.0, 0.0, 0.0)


def _why_no_cost(plan: Plan, held: Sequence[_Holding]) -> str | None:
    unpriced = sorted({one.accelerator for one in held if one.usd_per_hour is None})
    if not unpriced:
        return None if held else "no run is left"
    if not plan.manifest.settings.prices.raw:
        return "no prices are given"
    return f"no price is given for {' and '.join(unpriced)}"


def visible_effect(plan: Plan, noise: float | None = None) -> VisibleEffect:
    """Return the smallest effect that this plan's number of repeats can show.

    `noise` is the standard deviation of a run's log rate as earlier runs showed it, pooled over pairs. None assumes
    `ASSUMED_NOISE`. Then the mean of several runs of the baseline in a block is quieter than one run.
    """
    settings: Settings = plan.manifest.settings
    baselines = plan.manifest.baselines
    family = sum(cell.unsupported is None and cell.name not in baselines for cell in plan.cells)
    spread = ASSUMED_NOISE if noise is None else noise
    paired = spread if noise is not None else spread * math.sqrt((1.0 + 1.0 / _baseline_runs(plan)) / 2.0)
    source = "assumed" if noise is None else "seen in earlier runs"
    compared = "1 comparison" if family == 1 else f"{max(family, 0)} comparisons"
    assumption = f"{spread:.1%} noise between runs ({source}), {compared}, {POWER:.0%} chance"
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


def _usd_per_hour(prices: Prices, config: CellConfig, site: Site) -> float | None:
    """Return the price of an hour of a cell with this config at `site` in USD, or None if no price is given for it."""
    models = [device.model for device in serving(config, site).inventory if device.accelerator == config.accelerator]
    return usd_per_hour_on(prices, config, models)
