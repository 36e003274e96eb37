"""What an hour of a device costs. Prices are the user's or come from a dated list; none is ever made up.

`prices.devices` maps a device's model, or an accelerator for all its models, to USD per hour: of one device for GPUs,
of the whole machine for `cpu`, because a timed run has the machine to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from accelsweep.core.plans import Site


class Price(BaseModel):
    """USD for one hour of a device, when and where that price was seen."""

    model_config = ConfigDict(extra="forbid")

    usd_per_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    date: str | None = None
    source: str | None = None


def _from_number(value: Any) -> Any:
    return {"usd_per_hour": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


class Prices(BaseModel):
    """The `prices` key: a bare number stands for its `usd_per_hour`. Other keys are the analysis's."""

    model_config = ConfigDict(extra="allow")

    devices: dict[str, Annotated[Price, BeforeValidator(_from_number)]] = Field(default_factory=dict)


def usd_per_hour(prices: Mapping[str, Any], config: Mapping[str, Any], site: Site) -> float | None:
    """Return what an hour of a cell with this config costs at `site` in USD, or None if no price is given for it."""
    return usd_per_hour_on(prices, config, [d.model for d in site.inventory if d.accelerator == config["accelerator"]])


def usd_per_hour_on(prices: Mapping[str, Any], config: Mapping[str, Any], models: Sequence[str]) -> float | None:
    """Return what an hour of a cell with this config costs on devices of one of these `models`, or None if unpriced."""
    known = Prices.model_validate(prices).devices
    accelerator = config["accelerator"]
    price = next((known[name] for name in [*models, accelerator] if name in known), None)
    if price is None:
        return None
    units = config["num_nodes"] * (1 if accelerator == "cpu" else config["devices"])
    return float(price.usd_per_hour * units)
