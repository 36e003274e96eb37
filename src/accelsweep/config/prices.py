"""Prices per device-hour and per kilowatt-hour, and carbon intensity, set by the user or taken from a dated list.

`prices.devices` maps names to USD per hour. A name is a device model, a board's key in the datasheet table, or an
accelerator, which covers all of its models. For GPUs, the price is for one device; for `cpu`, it is for the whole
machine, because a timed run has exclusive use of the machine. `prices.purchase` maps the same names to purchase prices.
`prices.electricity.usd_per_kwh` and `prices.carbon.grams_per_kwh` convert energy to money and carbon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field

from accelsweep.config.value_errors import validated
from accelsweep.devices.datasheets import datasheet_of
from accelsweep.errors import InputError, nearest
from accelsweep.installation import config_folders
from accelsweep.json_documents import Amount, Frozen, Positive
from accelsweep.run_config import SettingConfig

HOURS_PER_YEAR = 8766.0


def _from_number(key: str, unit: str) -> BeforeValidator:
    """Convert a bare number to `{key: number}`, and explain the price format if the value is not valid."""

    def to_mapping(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {key: value}
        if value is not None and not isinstance(value, Mapping | Sourced):
            raise ValueError(f"is not a price; write a number ({unit}) or {{{key}: NUMBER, date: ..., source: ...}}")
        return value

    return BeforeValidator(to_mapping)


class Sourced(Frozen):
    """A price's date and source."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    date: str | None = None
    source: str | None = None


class Price(Sourced):
    """The price in USD of one device-hour."""

    usd_per_hour: Amount


class Electricity(Sourced):
    """The price in USD of one kilowatt-hour."""

    usd_per_kwh: Amount


class Carbon(Sourced):
    """Grams of CO2 equivalent per kilowatt-hour: the carbon intensity of the grid."""

    grams_per_kwh: Amount


class Purchase(Sourced):
    """The cost of a purchased device: `usd`, spread over its busy hours in `lifetime_years`.

    `utilisation` is the share of hours in which the device is busy. `watts` is its power draw while busy, such as the
    board power; None excludes electricity. The host, the facility and idle power are not included.
    """

    usd: Amount
    lifetime_years: Positive
    utilisation: Annotated[float, Field(gt=0, le=1)]
    watts: Amount | None = None

    def usd_per_hour(self, usd_per_kwh: float | None) -> float:
        """Return USD per busy hour: usd / (years * 8766 h * utilisation) + watts / 1000 * USD per kWh.

        The second term is omitted if `watts` or the electricity price is missing.
        """
        return self.usd / (self.lifetime_years * HOURS_PER_YEAR * self.utilisation) + self.power_usd(usd_per_kwh)

    def power_usd(self, usd_per_kwh: float | None) -> float:
        """Return the cost of electricity in USD per busy hour; 0 if the power or the electricity price is unknown."""
        return (self.watts or 0.0) / 1000 * (usd_per_kwh or 0.0)

    def describe(self, usd_per_kwh: float | None) -> str:
        """Describe the terms of `usd_per_hour`."""
        power = f", {self.watts:g} W" if self.watts and usd_per_kwh is not None else ", without electricity"
        share = f"{self.utilisation * 100:g} % of {self.lifetime_years:g} years"
        return f"bought for {self.usd:g} USD, in use {share}{power}"


class PaymentOption(NamedTuple):
    """A way to pay for a device: a fixed cost in USD per month and a cost in USD per hour of use.

    `upfront_usd` is the initial payment; None if there is none.
    """

    usd_per_month: float
    usd_per_hour: float
    description: str
    upfront_usd: float | None = None


class Prices(Frozen):
    """The `prices` key. A bare number is interpreted as the amount."""

    devices: dict[str, Annotated[Price, _from_number("usd_per_hour", "USD per device-hour")]] = Field(
        default_factory=dict
    )
    electricity: Annotated[Electricity | None, _from_number("usd_per_kwh", "USD per kWh")] = None
    carbon: Annotated[Carbon | None, _from_number("grams_per_kwh", "grams of CO2 per kWh")] = None
    purchase: dict[str, Purchase] = Field(default_factory=dict)

    @property
    def _usd_per_kwh(self) -> float | None:
        return self.electricity.usd_per_kwh if self.electricity is not None else None

    @property
    def hourly(self) -> dict[str, Price]:
        """The hourly price for each name, derived from the purchase price if there is no rental price."""
        bought = {
            name: Price(
                usd_per_hour=purchase.usd_per_hour(self._usd_per_kwh),
                date=purchase.date,
                source="; ".join(filter(None, (purchase.describe(self._usd_per_kwh), purchase.source))),
            )
            for name, purchase in self.purchase.items()
        }
        return bought | self.devices

    def of_names(self, names: Sequence[str]) -> tuple[str, Price] | None:
        """Return the first of `names` that has an hourly price, together with that price; None if none has a price."""
        hourly = self.hourly
        return next(((name, hourly[name]) for name in names if name in hourly), None)

    def payment_options(self, names: Sequence[str]) -> tuple[PaymentOption, ...]:
        """Return the payment options for a device with these `names`: rental, purchase, both or neither."""
        rented = next((self.devices[name] for name in names if name in self.devices), None)
        bought = next((self.purchase[name] for name in names if name in self.purchase), None)
        options = []
        if rented is not None:
            options.append(PaymentOption(0.0, rented.usd_per_hour, f"{rented.usd_per_hour:g} USD/h"))
        if bought is not None:
            monthly = bought.usd / (12 * bought.lifetime_years)
            description = f"bought for {bought.usd:g} USD, kept {bought.lifetime_years:g} years"
            options.append(PaymentOption(monthly, bought.power_usd(self._usd_per_kwh), description, bought.usd))
        return tuple(options)


class PriceUsed(Frozen):
    """A price used to compute costs: item, amount and unit, with the date and source that the user stated."""

    name: str
    value: float
    unit: str
    date: str | None
    source: str | None


def read_prices(home: Path, given: str) -> Prices:
    """Read the price lists in `given`, such as `cloud,bought`: files, or names in the local or shipped `conf/prices`.

    The first list with a price for an item takes precedence. Raises an InputError that names the closest list.
    """
    lists = [_read_list(home, name.strip()) for name in given.split(",") if name.strip()]
    if not lists:
        raise InputError("--prices names no list: specify a file, or a name in conf/prices such as cloud")
    if len(lists) == 1:
        return lists[0]
    return Prices(
        devices={name: price for prices in reversed(lists) for name, price in prices.devices.items()},
        purchase={name: purchase for prices in reversed(lists) for name, purchase in prices.purchase.items()},
        electricity=next((prices.electricity for prices in lists if prices.electricity), None),
        carbon=next((prices.carbon for prices in lists if prices.carbon), None),
    )


def _read_list(home: Path, name: str) -> Prices:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folders = [folder / "prices" for folder in config_folders(home)]
    candidates = [home / name, *(folder / f"{name}.yaml" for folder in folders)]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
        raise InputError(
            f"no prices {name!r}{nearest(name, known)}: there is neither a file with this name nor "
            f"conf/prices/{name}.yaml; there are: {', '.join(known)}"
        )
    try:
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid YAML: {error}") from error
    return validated(Prices, values, "prices", lambda _key: str(path))


def usd_per_hour_on(prices: Prices, config: SettingConfig, models: Sequence[str]) -> float | None:
    """Return the hourly cost of a setting with this config on devices of these `models`; None if unpriced."""
    named_price = price_on(prices, config, models)
    if named_price is None:
        return None
    units = config.world_size if config.on_gpu else config.num_nodes
    return float(named_price[1].usd_per_hour * units)


def price_on(prices: Prices, config: SettingConfig, models: Sequence[str]) -> tuple[str, Price] | None:
    """Return the listed name and price of the devices used by a setting with this config; None if unpriced.

    A device's own name takes precedence over its datasheet key, such as `h100-sxm`, which in turn takes precedence over
    its accelerator.
    """
    keys = [sheet.key for model in models if (sheet := datasheet_of(model)) is not None]
    return prices.of_names([*models, *keys, config.accelerator])


def price_lines(prices: Prices, used: Collection[str]) -> tuple[PriceUsed, ...]:
    """Return the prices whose names are in `used` (possibly `electricity` and `carbon`), with their sources."""
    lines: list[tuple[str, float, str, Sourced]] = [
        (name, price.usd_per_hour, "USD per hour", price) for name, price in prices.hourly.items()
    ]
    if prices.electricity is not None:
        lines.append(("electricity", prices.electricity.usd_per_kwh, "USD per kWh", prices.electricity))
    if prices.carbon is not None:
        lines.append(("carbon", prices.carbon.grams_per_kwh, "g CO2 per kWh", prices.carbon))
    return tuple(
        PriceUsed(name=name, value=value, unit=unit, date=sourced.date, source=sourced.source)
        for name, value, unit, sourced in lines
        if name in used
    )
