"""`accelsweep advise`: how much hardware a training run needs, and which is cheapest. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from pydantic import Field

from accelsweep.cli.options import AsJson, SweepName
from accelsweep.config.prices import Prices, read_prices
from accelsweep.driver.console import Listing, say, show
from accelsweep.driver.json_output import Answer
from accelsweep.errors import InputError
from accelsweep.features.advise.offers import (
    Advice,
    Offer,
    Terms,
    Tier,
    Training,
    bills_of,
    grade,
    named,
    offers_of,
)
from accelsweep.features.advise.tiers import advise_on
from accelsweep.features.projection.analysis import project_onto, with_projections
from accelsweep.features.projection.model import Projections
from accelsweep.features.projection.project import rent_or_buy
from accelsweep.records.findings import Findings
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import count_of, parse_duration

if TYPE_CHECKING:
    from accelsweep.devices.datasheets import Datasheet
    from accelsweep.features.projection.analysis import Targets


def advise(findings: Findings, prices: Prices, training: Training, terms: Terms) -> Advice:
    """Return the advice on hardware for `training` within `terms`. Raises ValueError if nothing can be projected."""
    offers = offers_of(findings, prices, training)
    found = advise_on(offers, terms)
    return found.model_copy(
        update={
            "next_steps": tuple(_next(findings, found)),
            "monthly": tuple(_monthly(findings, prices)),
            "assumptions": tuple(_assumed(findings, training, offers)),
        }
    )


def epoch_samples(findings: Findings) -> float | None:
    """Return the size of the data set on which the projected setting was measured, or None if unknown."""
    found = findings.section(Projections)
    setting = next((one for one in findings.settings if found is not None and one.setting == found.setting), None)
    summary = None if setting is None else setting.metrics.get("epoch_samples")
    return summary.median if summary is not None and summary.minimum == summary.maximum else None


def _next(findings: Findings, found: Advice) -> Iterator[str]:
    """Yield what to measure or specify to make the answer certain."""
    choice = None if found.choice is None else found.offers[found.choice]
    if (projections := findings.section(Projections)) is not None and projections.disturbed:
        yield f"The machine was busy: `accelsweep retry {findings.sweep} --outcome disturbed`, then rerun the sweep."
    for one in found.offers:
        if one.measured and one.hours_measured is not None and one.hours_measured.low is None:
            yield f"The rate on {one.devices} has no interval: add repeats with --add-repeats."
        if one.tier is Tier.none and one.measured and one.usd_per_hour is None:
            yield "This machine has no price: set prices.devices.cpu (USD/h) or prices.purchase.cpu."
    wanted = choice or next((one for one in found.offers if grade(one) < 2), None)
    if wanted is None:
        return
    if wanted.measured:
        yield f"{wanted.devices} was measured. Nothing more is needed, unless a price or a bound changes."
        return
    price = "" if wanted.usd_per_hour is None else f" (about {wanted.usd_per_hour / wanted.count:.2g} USD)"
    yield (
        f"{named(wanted)}: rent one for an hour{price} and run this sweep there with accelerator=cuda. Then "
        "`accelsweep export` it, `import` it here, and run `advise` on that sweep: projections start from its rate."
    )


def _monthly(findings: Findings, prices: Prices) -> Iterator[str]:
    """Yield each device's break-even points once: against this machine, and between renting and buying."""
    projections = findings.section(Projections)
    devices = projections.devices if projections is not None else ()
    yield from dict.fromkeys(line for device in devices if device.form == devices[0].form for line in device.monthly)
    for name, key in dict.fromkeys((one.name, one.device) for one in devices):
        bills = bills_of(key, prices)
        if len(bills) == 2:
            yield rent_or_buy(*bills, name)


def _assumed(findings: Findings, training: Training, offers: tuple[Offer, ...]) -> Iterator[str]:
    each = training.samples / training.epochs
    passes = f"{training.epochs:g} epoch{'' if training.epochs == 1 else 's'}"
    yield f"The training run covers {passes} of {each:,.0f} samples, {training.samples:,.0f} in total."
    yield "Hours cover steady-state training steps only: validation, checkpoints and waiting for a machine are extra."
    if (projections := findings.section(Projections)) is not None:
        batch = count_of(projections.batch, "sample")
        yield f"Projected devices use batches of {batch}. A different total batch size can change what is learned."
    if any(one.usd_projected is not None for one in offers):
        yield "Rent is billed by the second, and n devices cost n times as much as one. Providers' offers differ."
    if any(one.outlay_usd is not None for one in offers):
        yield "Purchases are spread over their stated lifetime and use, but must fit into the budget in full."


class AdviseAnswer(Advice, Answer):
    """`accelsweep advise NAME --json`: ranked hardware for a training run. Projected numbers use separate keys."""

    kind: ClassVar[str] = "advise"

    sweep: str = Field(description="the sweep's name")
    epochs: float = Field(description="the requested passes over the data")
    samples: float = Field(description="the samples per pass")
    deadline_hours: float | None = Field(description="the deadline in hours")
    budget_usd: float | None = Field(description="the budget in USD")


HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}

MAX_PROJECTIONS = 10
"""The number of projections to print; `--json` contains all of them."""


@dataclass(frozen=True)
class Question:
    """The command-line options; None if not given."""

    epochs: float
    samples: float | None = None
    deadline: str | None = None
    budget: float | None = None
    onto: str | None = None
    prices: str | None = None
    batch: int | None = None


def advise_training(home: Path, name: str, asked: Question, *, as_json: bool = False) -> None:
    """Print the advice. Raises InputError for invalid numbers, unknown names, or a sweep that cannot be projected."""
    from accelsweep.features.projection.analysis import Targets

    epochs = _positive("--epochs", asked.epochs)
    terms = Terms(_hours(asked.deadline), None if asked.budget is None else _positive("--budget", asked.budget))
    given = None if asked.samples is None else _positive("--samples", asked.samples)
    manifest = Manifest.read(existing_sweep(home, name).manifest)
    prices = manifest.options.prices if asked.prices is None else read_prices(home, asked.prices)
    if asked.batch is not None:
        _positive("--batch", asked.batch)
    findings = _findings(home, name, Targets(_devices(asked.onto, prices), prices, asked.batch))
    each = given or _epoch_samples(findings)
    found = advise(findings, prices, Training(each * epochs, epochs), terms)
    if as_json:
        asked_for = {"sweep": name, "epochs": epochs, "samples": each}
        limits = {"deadline_hours": terms.hours, "budget_usd": terms.usd}
        say(AdviseAnswer.model_validate({**dict(found), **asked_for, **limits}).text())
        return
    _print(name, found)


def _positive(option: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{option} {value:g} must be a positive number")
    return value


def _hours(deadline: str | None) -> float | None:
    """Parse `90m`, `24h`, `3d` or `2w` into hours; None for None."""
    if deadline is None:
        return None
    hours = parse_duration(deadline, HOURS)
    if not hours:
        raise InputError(f"--deadline {deadline!r} is not a positive duration such as 90m, 24h, 3d or 2w")
    return hours


def _devices(onto: str | None, prices: Prices) -> tuple[Datasheet, ...]:
    """Return the requested devices, or those with a price, or the default ones."""
    from accelsweep.devices.datasheets import datasheet, datasheet_of, datasheets
    from accelsweep.features.projection.analysis import DEFAULT_DEVICES

    keys = [key.strip() for key in (onto or "").split(",") if key.strip()]
    if keys:
        return tuple(datasheet(key) for key in dict.fromkeys(keys))
    found = [datasheets().get(name) or datasheet_of(name) for name in prices.hourly]
    priced = tuple(dict.fromkeys(one.key for one in found if one is not None))
    return tuple(datasheet(key) for key in priced or DEFAULT_DEVICES)


def _findings(home: Path, name: str, onto: Targets) -> Findings:
    from accelsweep.analysis.analyse_sweep import Analysis, analyse
    from accelsweep.analysis.collect import read_runs

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    runs = read_runs(folder, manifest)
    projected = project_onto(Analysis.of(runs, manifest), onto)
    if projected is None:
        raise InputError(f"{name} has no measured run of a model, so there is no basis for advice")
    if projected.reason is not None:
        raise InputError(f"{name}: {projected.reason}")
    return with_projections(analyse(runs, manifest), projected)


def _epoch_samples(findings: Findings) -> float:
    found = epoch_samples(findings)
    if found is None:
        raise InputError(f"{findings.sweep} does not record its data set's size: set --samples, the number per epoch")
    return found


def _print(name: str, found: Advice) -> None:
    say(found.headline)
    places = list(enumerate(found.offers, 1))
    measured = [(place, one) for place, one in places if one.measured]
    projected = [(place, one) for place, one in places if one.hours_projected is not None]
    if measured:
        show(_listing(f"{name}: measured here", measured))
    if projected:
        shown = projected[:MAX_PROJECTIONS]
        more = f" ({len(projected) - len(shown)} more with --json)" if len(projected) > len(shown) else ""
        show(_listing(f"{name}: projected, not measured; 90 % intervals{more}", shown))
    for line in _refused(found):
        say(line)
    for title, lines in (
        ("What would change this", found.changes),
        ("By the month", found.monthly),
        ("To be sure", found.next_steps),
        ("Assumed", found.assumptions),
    ):
        for line in lines:
            say(f"{title}: {line}")


def _listing(title: str, offers: list[tuple[int, Offer]]) -> Listing:
    headings = ("rank", "hardware", "setting", "time", "USD", "paid", "memory", "in time", "in budget")
    return Listing(title, headings, tuple(_row(place, one) for place, one in offers))


def _row(place: int, one: Offer) -> tuple[str, ...]:
    from accelsweep.features.advise.tiers import span_words

    cost = span_words(one, "usd")
    bounds = (one.in_time.value, one.in_budget.value)
    return (str(place), one.devices, one.form, span_words(one, "hours"), cost, one.paid or "-", one.room.value, *bounds)


def _refused(found: Advice) -> Iterator[str]:
    """Yield why projections are missing for some hardware: each reason once, with the devices and their counts."""
    counts: dict[tuple[str, str], list[int]] = {}
    for one in sorted(found.offers, key=lambda offer: offer.count):
        if one.reason is not None:
            counts.setdefault((one.reason, one.name), []).append(one.count)
    devices: dict[tuple[str, str], list[str]] = {}
    for (reason, name), own in counts.items():
        devices.setdefault((reason, ", ".join(map(str, own))), []).append(name)
    for (reason, numbers), names in devices.items():
        each = "" if numbers == "1" else f"{numbers} x "
        yield f"not projected: {each}{' / '.join(names)}: {reason}"


def advise_command(
    name: SweepName,
    epochs: Annotated[float, typer.Option(help="number of passes over the data")],
    deadline: Annotated[str | None, typer.Option(help="the deadline: 90m, 24h, 3d, 2w")] = None,
    budget: Annotated[float | None, typer.Option(help="the budget in USD")] = None,
    samples: Annotated[float | None, typer.Option(help="samples per epoch (default: the size of the data set)")] = None,
    onto: Annotated[
        str | None, typer.Option(help="device keys, e.g. h100-sxm,l4 (default: devices with a price)")
    ] = None,
    prices: Annotated[str | None, typer.Option(help="price lists, e.g. cloud,bought, or files")] = None,
    batch: Annotated[int | None, typer.Option(help="batch size per device (default: as measured)")] = None,
    as_json: AsJson = False,
) -> None:
    """`accelsweep advise NAME --epochs N`."""
    asked = Question(epochs, samples, deadline, budget, onto, prices, batch)
    advise_training(Path.cwd(), name, asked, as_json=as_json)
