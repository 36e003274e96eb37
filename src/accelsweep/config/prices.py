"""Prices of a device-hour and of a kilowatt-hour, and its carbon. Prices are the user's or come from a dated list.

None is ever made up. `prices.devices` maps names to USD per hour. A name is a device's model, the key of a board in the
table of datasheets, or an accelerator for all its models. That is the price of one device for GPUs. For `cpu` it is
that of the whole machine, because a timed run has the machine to itself. `prices.purchase` maps the same names to the
price of a device that is bought. `prices.electricity.usd_per_kwh` and `prices.carbon.grams_per_kwh` turn an energy into
money and carbon.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)

from accelsweep.config.value_errors import validated
from accelsweep.devices.datasheets import datasheet_of
from accelsweep.errors import InputError, nearest
from accelsweep.installation import config_folders
from accelsweep.json_documents import Amount, Frozen, Positive, first_error
from accelsweep.run_config import SettingConfig

HOURS_OF_A_YEAR = 8766.0


def _from_number(key: str, unit: str) -> BeforeValidator:
    """Let a bare number stand for `{key: number}`, and describe a price where the value is anything else."""

    def shaped(value: Any) -> Any:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return {key: value}
        if value is not None and not isinstance(value, Mapping | Sourced):
            raise ValueError(f"is no price; write a number ({unit}) or {{{key}: NUMBER, date: ..., source: ...}}")
        return value

    return BeforeValidator(shaped)


class Sourced(BaseModel):
    """The day and the source of a price."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    date: str | None = None
    source: str | None = None


class Price(Sourced):
    """USD for one hour of a device."""

    usd_per_hour: Amount


class Electricity(Sourced):
    """USD for one kilowatt-hour."""

    usd_per_kwh: Amount


class Purchase(Sourced):
    """The cost of a device that is bought: `usd`, spread over the hours that it works in `lifetime_years`.

    `utilisation` is the share of all hours in which it works. `watts` is what it draws then, such as its board power;
    None counts no electricity. The machine around it, its room and its idle power are not in it.
    """

    usd: Amount
    lifetime_years: Positive
    utilisation: Annotated[float, Field(gt=0, le=1)]
    watts: Amount | None = None

    def usd_per_hour(self, usd_per_kwh: float | None) -> float:
        """Return USD for one hour of work: usd / (years * 8766 h * utilisation) + watts / 1000 * USD per kWh.

        Without `watts` or without a price of electricity, the second term is left out.
        """
        return self.usd / (self.lifetime_years * HOURS_OF_A_YEAR * self.utilisation) + self.power_usd(usd_per_kwh)

    def power_usd(self, usd_per_kwh: float | None) -> float:
        """Return USD of electricity for one hour of work; 0 where the power or its price is not known."""
        return (self.watts or 0.0) / 1000 * (usd_per_kwh or 0.0)

    def words(self, powered: bool) -> str:
        """Return the terms of the price in words; `powered` says whether a price of electricity is known."""
        power = f", {self.watts:g} W" if self.watts and powered else ", without electricity"
        share = f"{self.utilisation * 100:g} % of {self.lifetime_years:g} years"
        return f"bought for {self.usd:g} USD, working {share}{power}"


class PaymentOption(NamedTuple):
    """The cost of a device in a month: USD whether it works or not, and USD for each hour that it works.

    `words` say how it is paid for. `outlay_usd` is paid at once, None where nothing is.
    """

    usd_per_month: float
    usd_per_hour: float
    words: str
    upfront_usd: float | None = None


class Carbon(Sourced):
    """Grams of CO2 equivalent that one kilowatt-hour costs: the carbon intensity of the grid."""

    grams_per_kwh: Amount


class Prices(BaseModel):
    """The `prices` key, written back as the mapping that it was read from. A bare number stands for the amount."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: dict[str, Annotated[Price, _from_number("usd_per_hour", "USD per device-hour")]] = Field(
        default_factory=dict
    )
    electricity: Annotated[Electricity | None, _from_number("usd_per_kwh", "USD per kWh")] = None
    carbon: Annotated[Carbon | None, _from_number("grams_per_kwh", "grams of CO2 per kWh")] = None
    purchase: dict[str, Purchase] = Field(default_factory=dict)

    _raw: dict[str, Any] = PrivateAttr(default_factory=dict)
    _unusable: str | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_raw(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        prices = handler(value)
        if isinstance(value, Mapping):
            prices._raw = dict(value)
        return prices

    @model_serializer(mode="plain")
    def _as_written(self) -> dict[str, Any]:
        return self._raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prices) and self._raw == other._raw

    __hash__ = None  # type: ignore[assignment]  # equal mappings may differ in their keys' order

    @property
    def raw(self) -> dict[str, Any]:
        """The mapping as it was written. It must not be changed."""
        return self._raw

    @property
    def unusable(self) -> str | None:
        """The reason why these prices are of no use: this version cannot read all prices in a plan of an older one."""
        return self._unusable

    @property
    def hourly(self) -> dict[str, Price]:
        """The price of an hour of each named device: those that are bought, and the stated ones, which go before."""
        power = self.electricity.usd_per_kwh if self.electricity is not None else None
        bought = {
            name: Price(
                usd_per_hour=one.usd_per_hour(power),
                date=one.date,
                source="; ".join(text for text in (one.words(power is not None), one.source) if text),
            )
            for name, one in self.purchase.items()
        }
        return bought | self.devices

    def of_device(self, accelerator: str, models: Sequence[str]) -> tuple[str, Price] | None:
        """Return the priced name of devices of one of these `models`, and the price; None if there is no price."""
        return self.of_names([*models, accelerator])

    def of_names(self, names: Sequence[str]) -> tuple[str, Price] | None:
        """Return the first of these `names` that has a price, and the price; None if there is none."""
        hourly = self.hourly
        return next(((name, hourly[name]) for name in names if name in hourly), None)

    def bills(self, names: Sequence[str]) -> tuple[PaymentOption, ...]:
        """Return how a device that has these `names` can be paid for: by the hour, bought, both or neither."""
        power = self.electricity.usd_per_kwh if self.electricity is not None else None
        rented = next((self.devices[name] for name in names if name in self.devices), None)
        bought = next((self.purchase[name] for name in names if name in self.purchase), None)
        found = [] if rented is None else [PaymentOption(0.0, rented.usd_per_hour, f"{rented.usd_per_hour:g} USD/h")]
        if bought is not None:
            monthly = bought.usd / (12 * bought.lifetime_years)
            words = f"bought for {bought.usd:g} USD, kept {bought.lifetime_years:g} years"
            found.append(PaymentOption(monthly, bought.power_usd(power), words, bought.usd))
        return tuple(found)


def _or_unusable(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    try:
        return handler(value)
    except ValidationError as error:
        if not isinstance(value, Mapping):
            raise
        found = Prices()
        found._raw, found._unusable = dict(value), first_error(error)
        return found


PlannedPrices = Annotated[Prices, WrapValidator(_or_unusable)]
"""The prices in a plan on disk: an unreadable price removes the costs, and nothing else, from a finished sweep."""


class PriceUsed(Frozen):
    """A price behind the costs: its item, its amount, and its date and source, as the user gave them."""

    name: str
    value: float
    unit: str
    date: str | None
    source: str | None


# Price lists that are named on the command line: files, or the lists in `conf/prices` here and as shipped.


def read_prices(home: Path, given: str) -> Prices:
    """Return the prices of one or more lists, `cloud,bought`: files, or names in `conf/prices` here or as shipped.

    Where two lists have a price for one thing, that of the first counts. Raises InputError that names the nearest list.
    """
    lists = [_read(home, name.strip()) for name in given.split(",") if name.strip()]
    if not lists:
        raise InputError("--prices names no list: write a file, or a name in conf/prices such as cloud")
    return lists[0] if len(lists) == 1 else _together(lists)


def _together(lists: list[Prices]) -> Prices:
    found = Prices()
    for one in reversed(lists):
        found = Prices(
            devices=found.devices | one.devices,
            purchase=found.purchase | one.purchase,
            electricity=one.electricity or found.electricity,
            carbon=one.carbon or found.carbon,
        )
    return found


def _read(home: Path, given: str) -> Prices:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    folders = [folder / "prices" for folder in config_folders(home)]
    places = [home / given, *(folder / f"{given}.yaml" for folder in folders)]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
        there = f"neither a file of this name nor conf/prices/{given}.yaml is there; there are: {', '.join(known)}"
        raise InputError(f"no prices {given!r}{nearest(given, known)}: {there}")
    try:
        given_prices = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no YAML: {error}") from error
    return validated(Prices, given_prices, "prices", lambda _key: str(path))


# The price of an hour of a setting on devices that are known by name, and the prices that it was computed with.


def usd_per_hour_on(prices: Prices, config: SettingConfig, models: Sequence[str]) -> float | None:
    """Return the hourly price of a setting with this config on devices of one of these `models`; None if unpriced."""
    found = price_on(prices, config, models)
    if found is None:
        return None
    units = config.world_size if config.on_gpu else config.num_nodes
    return float(found[1].usd_per_hour * units)


def price_on(prices: Prices, config: SettingConfig, models: Sequence[str]) -> tuple[str, Price] | None:
    """Return the priced name of the devices that a setting with this config uses, and the price; None if unpriced.

    A device's own name goes before the key of its datasheet, such as `h100-sxm`, and that before its accelerator.
    """
    keys = [sheet.key for model in models if (sheet := datasheet_of(model)) is not None]
    return prices.of_device(config.accelerator, [*models, *keys])


def price_lines(prices: Prices, used: Collection[str]) -> tuple[PriceUsed, ...]:
    """Return the prices whose names are in `used` (`electricity` and `carbon` for those) with dates and sources."""
    lines: list[tuple[str, float, str, Sourced]] = [
        (name, price.usd_per_hour, "USD per hour", price) for name, price in prices.hourly.items()
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
