"""The time that a run will take, foretold from its first steps, and the `measure=` that suits such a pace.

A window has a least number of steps. So a step of some seconds makes a run of minutes, whatever seconds were asked for.
The user should hear of that after the first steps, and not when the first run has ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from accelsweep.base.durations import duration
from accelsweep.core.cells.config import CellConfig, Measure
from accelsweep.measure.breakdown import SETTLING_STEPS, steps_of_pass
from accelsweep.measure.clock import Clock, monotonic
from accelsweep.measure.window import WindowRules

FEWEST_STEPS = 3
FEWEST_SECONDS = 5.0
"""Steps and seconds after the first look that tell the pace. The slow first step was done before that look.

Quick steps can be slow too until libraries are loaded and caches are filled. The seconds make that little of the whole.
"""
LONG_SECONDS = 60.0
"""A run that takes longer is announced."""
WORTH = 0.5
"""Another way to measure is named if it takes at most this share of the time."""


class Pace:
    """Finds the seconds of a step by looking at a run's number of steps now and then."""

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` tells when a look was taken."""
        self._clock = clock
        self._first: tuple[str, float, int] | None = None

    def look(self, run: str, steps: int | None) -> float | None:
        """Return the seconds of a step of `run` that has done so many steps by now; None if it is too early to tell."""
        if not steps:
            return None
        if self._first is None or self._first[0] != run:
            self._first = (run, self._clock(), steps)
        _, begun, before = self._first
        took, done = self._clock() - begun, steps - before
        return took / done if done >= FEWEST_STEPS and took >= FEWEST_SECONDS else None


@dataclass(frozen=True)
class Forecast:
    """The steps of a run by phase at a known pace. The validations and the start of a run are not in it."""

    step_seconds: float
    steps: Mapping[str, int]

    @classmethod
    def of(cls, config: CellConfig, measure: Measure, step_seconds: float) -> Forecast:
        """Foretell a run of `config` that is measured by the rules of `measure`."""
        rules = WindowRules.from_config(measure)
        steps = {"warm-up": rules.warmup, "window": rules.window_steps([step_seconds])}
        if config.task in ("train_throughput", "time_to_accuracy") and measure.probe_steps:
            passes = 2 if config.world_size > 1 else 1
            looked = steps_of_pass(measure.probe_steps, measure.min_seconds, step_seconds, 1)
            steps["probe pass"] = passes * (SETTLING_STEPS + looked)
        if config.task == "train_throughput" and measure.quality_samples:
            steps["quality"] = math.ceil(measure.quality_samples / config.samples_per_step)
        return cls(step_seconds, steps)

    @property
    def seconds(self) -> float:
        """The seconds of the run, at least."""
        return self.step_seconds * sum(self.steps.values())


def announcement(config: CellConfig, found: Forecast, runs: int, options: Mapping[str, Measure]) -> str:
    """Say what a run and all `runs` that are left will take, and which of the `options` takes much less.

    `options` are the ways to measure by name, as `measure_options` tells them.
    """
    phases = ", ".join(f"{phase} {count}" for phase, count in found.steps.items())
    run = duration(found.seconds)
    said = f"a step takes {found.step_seconds:.2g} s, so a run takes {run} or more (steps: {phases})"
    said += f". At that pace all {runs} that are left take {duration(runs * found.seconds)}" if runs > 1 else ""
    alike = {name: one for name, one in options.items() if one.quality_metric == config.measure.quality_metric}
    takes = {name: Forecast.of(config, measure, found.step_seconds).seconds for name, measure in alike.items()}
    name, least = min(takes.items(), key=lambda one: one[1], default=("", math.inf))
    if least > WORTH * found.seconds:
        return said
    return f"{said}. With measure={name} it would take {duration(least)}: Ctrl-C, then the same command with that"
