"""Advice on hardware for one's own training: what is measured here and what is projected, ranked and never mixed.

An offer is a way to do the whole training. Measured and projected numbers have fields, and types, of their own.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import model_validator

from accelsweep.core.findings.projections import Room
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Range


class Tier(StrEnum):
    """The amount of hardware that an offer takes, from least to most."""

    none = "no GPU"
    one = "one GPU"
    several = "several GPUs"
    cluster = "a cluster"


class Fit(StrEnum):
    """Whether an offer keeps to a bound: with its whole interval, with its middle only, not, or nobody knows."""

    surely = "surely"
    perhaps = "perhaps"
    no = "no"
    unknown = "not known"


class Offer(Frozen):
    """One way to do the whole training: on `count` devices called `name`; `reason` says why it has no numbers.

    Hours and USD are for the whole training, measured or projected, never both. `key` is the device's in the table of
    boards. `paid` says how it is paid for, empty without a price; `outlay_usd` is paid at once for what is bought
    first. `source` says where the numbers come from, `notes` what weakens them.
    """

    tier: Tier
    name: str
    count: int = 1
    key: str | None = None
    form: str = ""
    reason: str | None = None
    hours_measured: Estimate | None = None
    usd_measured: Estimate | None = None
    hours_projected: Range | None = None
    usd_projected: Range | None = None
    usd_per_hour: float | None = None
    paid: str = ""
    outlay_usd: float | None = None
    room: Room = Room.unknown
    in_time: Fit = Fit.unknown
    in_budget: Fit = Fit.unknown
    notes: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _one_basis(self) -> Offer:
        if sum(one is not None for one in (self.hours_measured, self.hours_projected, self.reason)) != 1:
            raise ValueError("an offer is measured, or projected, or has the reason why it is neither")
        return self

    @property
    def measured(self) -> bool:
        """Whether the numbers were measured here."""
        return self.hours_measured is not None

    @property
    def words(self) -> str:
        """The devices: `8 x H100 SXM`."""
        return self.name if self.tier is Tier.none or self.key is None else f"{self.count} x {self.name}"


class Advised(Frozen):
    """The answer: the least tier that keeps to the bounds, the cheapest offer that does, and how far to trust both.

    `headline` is the answer in words. `tier` is None where no offer surely keeps to the bounds, `choice` the place of
    the cheapest in `offers`, which are ranked. `changes` would turn the answer, and `next_steps` are measurements that
    would make it sure. `monthly` says from how many hours a month another way to pay is cheaper. All rests on the
    `assumptions`.
    """

    headline: str
    tier: Tier | None = None
    choice: int | None = None
    offers: tuple[Offer, ...] = ()
    changes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    monthly: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
