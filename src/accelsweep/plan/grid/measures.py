"""The ways to measure that a user may choose from by `measure=NAME`, each as it would be in their sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from accelsweep.base.errors import InputError
from accelsweep.core.cells.config import Measure
from accelsweep.plan.grid.compose import Composer

MEASURE_GROUP = "measure"


def measure_options(home: Path, overrides: Sequence[str]) -> dict[str, Measure]:
    """Return what `measure=NAME` would make of a sweep's `measure`, by name; nothing where one cannot be composed.

    The sweep's other overrides stay, so a key that one of them sets has its value in every option. A sweep over keys of
    `measure` has no single answer, so nothing is returned.
    """
    composer = Composer.of(home, overrides)
    parsed = [composer.parse(line) for line in overrides]
    if any(one.is_sweep_override() and one.key_or_group.split(".")[0] == MEASURE_GROUP for one in parsed):
        return {}
    kept = [
        line
        for line, one in zip(overrides, parsed, strict=True)
        if not one.is_sweep_override() and one.key_or_group != MEASURE_GROUP
    ]
    try:
        return {
            name: Measure.model_validate(
                OmegaConf.to_container(
                    composer.compose([*kept, f"{MEASURE_GROUP}={name}"])[MEASURE_GROUP], resolve=True
                )
            )
            for name in composer.loader.get_group_options(MEASURE_GROUP)
        }
    except (InputError, ValueError):
        return {}
