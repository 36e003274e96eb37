"""What an hour of a device, a kilowatt-hour and its carbon cost. Prices are the user's or come from a dated list.

None is ever made up. `prices.devices` maps a device's model, or an accelerator for all its models, to USD per hour: of
one device for GPUs, of the whole machine for `cpu`, because a timed run has the machine to itself.
`prices.electricity.usd_per_kwh` and `prices.carbon.grams_per_kwh` turn a measured energy into money and carbon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from accelsweep.core.plans import Site
from accelsweep.core.prices import PriceUsed

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


def _from_number(key: str, unit: str) -> BeforeValidator:
    """Let a bare number stand for `{key: number}`, and say what a price looks like where there is anything else."""

    def shaped(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {key: value}
        if value is not None and not isinstance(value, Mapping | Stated):
            raise ValueError(f"is no price; write a number ({unit}) or {{{key}: NUMBER, date: ..., source: ...}}")
        return value

    return BeforeValidator(shaped)


class Stated(BaseModel):
    """When and where a price was seen."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    date: str | None = None
    source: str | None = None


class Price(Stated):
    """USD for one hour of a device."""

    usd_per_hour: Amount


class Electricity(Stated):
    """USD for one kilowatt-hour."""

    usd_per_kwh: Amount


class Carbon(Stated):
    """Grams of CO2 equivalent that one kilowatt-hour costs: the carbon intensity of the grid."""

    grams_per_kwh: Amount


class Prices(BaseModel):
    """The `prices` key; a bare number stands for the amount."""

    model_config = ConfigDict(extra="forbid")

    devices: dict[str, Annotated[Price, _from_number("usd_per_hour", "USD per device-hour")]] = Field(
        default_factory=dict
    )
    electricity: Annotated[Electricity | None, _from_number("usd_per_kwh", "USD per kWh")] = None
    carbon: Annotated[Carbon | None, _from_number("grams_per_kwh", "grams of CO2 per kWh")] = None

    def of_device(self, accelerator: str, models: Sequence[str]) -> tuple[str, Price] | None:
        """Return under which name the devices of one of these `models` are priced, and the price; None if nowhere."""
        return next(((name, self.devices[name]) for name in [*models, accelerator] if name in self.devices), None)


def read_prices(prices: Mapping[str, Any]) -> Prices:
    """Return the checked `prices` of a plan; raise ValidationError for what is no price."""
    return Prices.model_validate(prices)


def usd_per_hour(prices: Mapping[str, Any], config: Mapping[str, Any], site: Site) -> float | None:
    """Return what an hour of a cell with this config costs at `site` in USD, or None if no price is given for it."""
    models = [device.model for device in site.inventory if device.accelerator == config["accelerator"]]
    return usd_per_hour_on(read_prices(prices), config, models)


def usd_per_hour_on(prices: Prices, config: Mapping[str, Any], models: Sequence[str]) -> float | None:
    """Return what an hour of a cell with this config costs on devices of one of these `models`, or None if unpriced."""
    found = prices.of_device(config["accelerator"], models)
    if found is None:
        return None
    units = config["num_nodes"] * (1 if config["accelerator"] == "cpu" else config["devices"])
    return float(found[1].usd_per_hour * units)


def price_lines(prices: Prices, used: Collection[str]) -> tuple[PriceUsed, ...]:
    """Return the prices whose names are in `used` (`electricity` and `carbon` for those) with dates and sources."""
    lines: list[tuple[str, float, str, Stated]] = [
        (name, price.usd_per_hour, "USD per hour", price) for name, price in prices.devices.items()
    ]
    if prices.electricity is not None:
        lines.append(("electricity", prices.electricity.usd_per_kwh, "USD per kWh", prices.electricity))
    if prices.carbon is not None:
        lines.append(("carbon", prices.carbon.grams_per_kwh, "g CO2 per kWh", prices.carbon))
    return tuple(
        PriceUsed(name=name, value=value, unit=unit, date=stated.date, source=stated.source)
        for name, value, unit, stated in lines
        if name in used
    )
