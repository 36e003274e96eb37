"""Projections: estimates for devices that were not measured, strictly separated from measurements.

A projection has no verdict and is not a metric. `Range` is a different type from `Estimate`, so no table or figure can
confuse them.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, model_validator

from accelsweep.json_documents import Frozen
from accelsweep.records.findings import Section


class Range(Frozen):
    """A projected value with its 90 % interval."""

    value: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """The range in words, such as `about 2,800, 1,900 to 4,100`. Measured values are never written this way."""
        return f"about {two_digits(self.value)}, {two_digits(self.low)} to {two_digits(self.high)}"


def two_digits(value: float) -> str:
    """Format a projected value, already rounded to two digits, without an exponent."""
    return f"{value:,.12f}".rstrip("0").rstrip(".")


def shortened(value: float) -> str:
    """Format a value to two digits, without an exponent."""
    return two_digits(float(f"{value:.2g}"))


class MemoryFit(StrEnum):
    """Whether a batch fits in a device's memory, based on lower and upper bounds on memory use."""

    fits = "fits"
    unsure = "may not fit"
    too_large = "does not fit"
    unknown = "not known"


class Projection(Frozen):
    """The projection onto one device in one form (task and number format), or the `reason` why there is none.

    `rate` is in samples per second, `ratio` is relative to the locally measured setting. `joules_per_sample_at_most` is
    the board's power limit divided by the slowest rate in the interval. `limit` is the bottleneck. `monthly` specifies
    the hours of training per month above which another payment model is cheaper. `notes` are caveats.
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
    room: MemoryFit = MemoryFit.unknown
    limit: str = ""
    cheaper: str = ""
    monthly: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _rate_or_reason(self) -> Projection:
        if (self.rate is None) == (self.reason is None):
            raise ValueError("a projection has either a rate or the reason why it has none")
        return self


class HoldoutError(Frozen):
    """The error of projections onto held-out devices or families, over `count` rates of `networks` networks.

    `median_error` is relative; `coverage` is the share of 90 % intervals that contain the published rate.
    """

    count: int
    networks: int
    devices: int
    median_error: float
    coverage: float


class FormError(HoldoutError):
    """The error of projections onto held-out devices in one form."""

    form: str


class Projections(Section):
    """Projections of a sweep's chosen setting onto devices that were not measured."""

    reason: str | None = Field(default=None, description="why nothing is projected")
    setting: str | None = Field(default=None, description="the setting's ID")
    label: str = Field(default="", description="the setting's label")
    here: str = Field(default="", description="the device on which it was measured")
    batch: int = Field(default=0, description="the batch size per device")
    rate_here: float | None = Field(default=None, description="the measured rate, in samples per second")
    disturbed: bool = Field(
        default=False, description="whether there was other load on the machine; if so, ratios to its rate are omitted"
    )
    devices: tuple[Projection, ...] = Field(default=(), description="the projections, with 90 % intervals")
    unseen: tuple[FormError, ...] = Field(default=(), description="the error of projections onto held-out devices")
    sources: tuple[str, ...] = Field(default=(), description="the sources of the published rates")
