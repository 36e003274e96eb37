"""The probe pass of a run and the breakdown of a step that follows from it.

It trains a fresh module, like the quality phase, so that it adds nothing inside or before the timed window.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

import torch

from accelsweep.core.recorded.breakdown import Breakdown
from accelsweep.core.recorded.record import Metric
from accelsweep.measure.breakdown import PhaseTimer, ProbePass, breakdown_of, share_metrics, standstill, steps_of_pass
from accelsweep.measure.devices.kinds import measured_device, torch_kind
from accelsweep.measure.group import group_of
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.loops.phases import by_hand
from accelsweep.rank.spec import RunSpec


@dataclass(frozen=True)
class Probed:
    """The result of the pass."""

    breakdown: Breakdown | None
    metrics: dict[str, Metric]


def release(device: torch.device) -> None:
    """Free the memory that an earlier phase left on the device, so that no phase has less than the window had."""
    gc.collect()
    torch_kind(device.type).release(device)


def probe(spec: RunSpec, step_seconds: float) -> Probed:
    """Train at most `measure.probe_steps` steps and break them down. Raises the errors of the user's code.

    `step_seconds` is the pace of the window, the same on every rank. The pass looks at no more steps than fit into
    `measure.min_seconds`.
    """
    rules = spec.config.measure
    if rules.probe_steps is None:
        return Probed(None, share_metrics("not asked for: measure.probe_steps is null"))
    loop = make_loop(spec)
    steps = steps_of_pass(rules.probe_steps, rules.min_seconds, step_seconds, loop.accumulate)
    timer = PhaseTimer(measured_device(loop.device))
    listener = ProbePass(timer, steps, loop.stop_exchange if spec.world_size > 1 else None)
    loop.watch(timer)
    with by_hand(timer):
        loop.drive(listener)
    ranks = group_of(spec.world_size).gather(listener.halves)
    if (why := standstill(ranks)) is not None:
        return Probed(None, share_metrics(why))
    found = breakdown_of(ranks, steps)
    return Probed(found, share_metrics(found))
