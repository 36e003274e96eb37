"""Projections: estimates for devices that were not measured. They stand apart from findings' numbers, everywhere.

None of these has a verdict, and none is a metric. `Range` is not `Estimate`: what holds a projection cannot hold a
measurement, so that no table or figure takes one for the other.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import model_validator

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Range
from accelsweep.records.findings import Section


class Room(StrEnum):
    """Whether a batch fits in a device's memory, by bounds on what is kept there."""

    fits = "fits"
    unsure = "may not fit"
    too_large = "does not fit"
    unknown = "not known"


class Projected(Frozen):
    """One device in one form (task and number format), or the `reason` why there is no projection.

    `rate` is in samples per second, `ratio` is that over the setting measured here. `joules_per_sample_at_most` is the
    board's power limit over the slowest rate of the interval. `limit` names what takes most of the time. `monthly` says
    from how many hours of training a month another way to pay is cheaper. `notes` are what weakens this projection.
    """

    device: str
    name: str
    form: str
    reason: str | None = None
    rate: Range | None = None
    ratio: Range | None = None
    usd_per_hour: float | None = None
    usd_per_million_samples: Range | None = None
    usd_per_epoch: Range | None = None
    joules_per_sample_at_most: float | None = None
    room: Room = Room.unknown
    limit: str = ""
    cheaper: str = ""
    monthly: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _rate_or_reason(self) -> Projected:
        if (self.rate is None) == (self.reason is None):
            raise ValueError("a projection has either a rate or the reason why it has none")
        return self


class Unseen(Frozen):
    """The error of a form's projections on devices that the fit had not seen: the words beside every projection."""

    form: str
    count: int
    networks: int
    devices: int
    median_error: float
    coverage: float


class Elsewhere(Section):
    """The chosen setting of a sweep on devices that were not measured; `reason` says why nothing is said of them.

    `cell` and `label` name the setting, and `here` names the device that it was measured on. `batch` is its batch per
    device, and `rate_here` its measured rate in samples per second. Where that was `disturbed`, no projection is
    compared with it.
    """

    reason: str | None = None
    cell: str | None = None
    label: str = ""
    here: str = ""
    batch: int = 0
    rate_here: float | None = None
    disturbed: bool = False
    devices: tuple[Projected, ...] = ()
    unseen: tuple[Unseen, ...] = ()
    sources: tuple[str, ...] = ()
