"""The fitted model as it is shipped: coefficients, and how wrong they were on devices that they had not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from accelsweep.json_documents import Frozen
from accelsweep.project.parts import WORK_PARTS
from accelsweep.records.run_record import NetworkFamily

FITTED = Path(__file__).parent / "data" / "fitted.json"


class Spread(Frozen):
    """The distance of published rates from their projections, as logarithms of a ratio; each half covers 90 %.

    `device` is the half-width that belongs to a device as a whole, `families` that within one device, `within` the same
    for all families together. `family` belongs to a family that the fit has not seen. `transfer` is the half-width of a
    rate that is projected from another board's measured one, None where no two boards were compared.
    """

    device: float
    within: float
    families: Mapping[NetworkFamily, float]
    family: float
    transfer: float | None

    def half(self, kind: NetworkFamily) -> float:
        """Return the half-width of the 90 % interval of a model's log rate on a device that was not seen."""
        if kind in self.families:
            return math.hypot(self.device, self.families[kind])
        return math.hypot(self.device, self.within, self.family)


class Held(Frozen):
    """The error and coverage on unseen devices, or families: `count` rates of so many `networks`."""

    count: int
    networks: int
    devices: int
    median_error: float
    coverage: float


class Fitted(Frozen):
    """One form's model: seconds are the sum of `coefficients` times parts, times the exponential of a family's term."""

    form: str
    coefficients: tuple[float, ...]
    families: Mapping[NetworkFamily, float]
    spread: Spread
    unseen_devices: Held
    unseen_families: Held

    def shares(self, parts: tuple[float, ...]) -> dict[str, float]:
        """Return each part's share of the projected time, by its name."""
        own = [factor * part for factor, part in zip(self.coefficients, parts, strict=True)]
        return {name: value / sum(own) for name, value in zip(WORK_PARTS, own, strict=True)}

    def log_seconds(self, parts: tuple[float, ...], kind: NetworkFamily) -> float:
        """Return the natural logarithm of the seconds per sample."""
        total = sum(factor * part for factor, part in zip(self.coefficients, parts, strict=True))
        return math.log(total) + self.families.get(kind, 0.0)


@cache
def fitted() -> Mapping[str, Fitted]:
    """Return the shipped models by the key of their form."""
    found = json.loads(FITTED.read_text(encoding="utf-8"))
    return {one["form"]: Fitted.model_validate(one) for one in found["forms"]}
