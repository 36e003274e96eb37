"""`accelsweep advise`: how much hardware one's own training takes, and which is the cheapest. It writes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.config.prices import Prices, read_prices
from accelsweep.core.derived.advised import Advised, Offer
from accelsweep.driver.console import Listing, say, show
from accelsweep.errors import InputError
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import parse_duration

if TYPE_CHECKING:
    from accelsweep.analyse.beside.elsewhere import Onto
    from accelsweep.devices.datasheets import Datasheet
    from accelsweep.records.findings import Findings

HOURS = {"m": 1 / 60, "h": 1.0, "d": 24.0, "w": 168.0}
SHOWN = 10
"""So many projections are printed; `--json` has all."""


@dataclass(frozen=True)
class Question:
    """The question, as it stands on the command line; None is not given."""

    epochs: float
    samples: float | None = None
    deadline: str | None = None
    budget: float | None = None
    onto: str | None = None
    prices: str | None = None
    batch: int | None = None


def advise_training(home: Path, name: str, asked: Question, *, as_json: bool = False) -> None:
    """Print the advice. Raises InputError for wrong numbers, unknown names, and a sweep that cannot be projected."""
    from accelsweep.analyse.advice.hardware.bounds import Terms
    from accelsweep.analyse.advice.hardware.offers import Training
    from accelsweep.analyse.advice.hardware.training import advise
    from accelsweep.analyse.beside.elsewhere import Onto

    epochs = _positive("--epochs", asked.epochs)
    terms = Terms(_hours(asked.deadline), None if asked.budget is None else _positive("--budget", asked.budget))
    given = None if asked.samples is None else _positive("--samples", asked.samples)
    manifest = Manifest.read(existing_sweep(home, name).manifest)
    prices = manifest.settings.prices if asked.prices is None else read_prices(home, asked.prices)
    if asked.batch is not None:
        _positive("--batch", asked.batch)
    findings = _findings(home, name, Onto(_devices(asked.onto, prices), prices, asked.batch))
    each = given or _epoch_samples(findings)
    found = advise(findings, prices, Training(each * epochs, epochs), terms)
    if as_json:
        from accelsweep.answers.forms.advised import AdviseAnswer

        bounds = {"deadline_hours": terms.hours, "budget_usd": terms.usd}
        say(AdviseAnswer.made_of(found, sweep=name, epochs=epochs, samples=each, **bounds).text())
        return
    _print(name, found)


def _positive(option: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{option} {value:g} must be a number above 0")
    return value


def _hours(deadline: str | None) -> float | None:
    """Return the hours in `90m`, `24h`, `3d` or `2w`; None for None."""
    if deadline is None:
        return None
    hours = parse_duration(deadline, HOURS)
    if not hours:
        raise InputError(f"--deadline {deadline!r} is no time above 0: write 90m, 24h, 3d or 2w")
    return hours


def _devices(onto: str | None, prices: Prices) -> tuple[Datasheet, ...]:
    """Return the devices that were asked for, or those that have a price, or the usual ones."""
    from accelsweep.analyse.beside.elsewhere import USUAL
    from accelsweep.devices.datasheets import datasheet, datasheet_of, datasheets

    keys = [key.strip() for key in (onto or "").split(",") if key.strip()]
    if keys:
        return tuple(datasheet(key) for key in dict.fromkeys(keys))
    found = [datasheets().get(name) or datasheet_of(name) for name in prices.hourly]
    priced = tuple(dict.fromkeys(one.key for one in found if one is not None))
    return tuple(datasheet(key) for key in priced or USUAL)


def _findings(home: Path, name: str, onto: Onto) -> Findings:
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import look_up

    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    found = analyse(look_up(folder, manifest), manifest, onto)
    if found.elsewhere is None:
        raise InputError(f"{name} has no measured run of a model, so there is nothing to advise from")
    if found.elsewhere.reason is not None:
        raise InputError(f"{name}: {found.elsewhere.reason}")
    return found


def _epoch_samples(findings: Findings) -> float:
    from accelsweep.analyse.advice.hardware.training import epoch_samples

    found = epoch_samples(findings)
    if found is None:
        raise InputError(f"{findings.sweep} does not know the size of its data set: give --samples, those of an epoch")
    return found


def _print(name: str, found: Advised) -> None:
    say(found.headline)
    places = list(enumerate(found.offers, 1))
    measured = [(place, one) for place, one in places if one.measured]
    projected = [(place, one) for place, one in places if one.hours_projected is not None]
    if measured:
        show(_listing(f"{name}: measured here", measured))
    if projected:
        shown = projected[:SHOWN]
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
    from accelsweep.analyse.advice.hardware.tiers import span_words

    cost = span_words(one, "usd")
    bounds = (one.in_time.value, one.in_budget.value)
    return (str(place), one.words, one.form, span_words(one, "hours"), cost, one.paid or "-", one.room.value, *bounds)


def _refused(found: Advised) -> Iterator[str]:
    """Yield why some hardware has no projection: each reason once, with the devices and their numbers."""
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
