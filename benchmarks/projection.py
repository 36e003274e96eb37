"""How wrong are projections on cards and families that the fit has not seen? Prints tables; `--write` ships the fit.

    python benchmarks/projection.py [--write] [--form training-amp]

Leave-one-device-out: each device's rates are projected by a fit without them, and its 90 % intervals come from the
other devices alone. Leave-one-family-out: the same for a kind of network. Aims: a median error of at most 15 % for
inference and 25 % for training, and intervals that hold at least 88 % of the published rates.
"""

from __future__ import annotations

import argparse
import itertools
import json

import numpy as np

from accelsweep.devices.datasheets import datasheets
from accelsweep.features.projection.fit import (
    MIN_FAMILY_MODELS,
    Coefficients,
    PublishedRate,
    RateTable,
    Refit,
    Vector,
    error_spread,
    fit,
    leave_one_device_out,
    leave_one_family_out,
    published_rates,
    rate_table,
    refit_with,
    sources,
)
from accelsweep.features.projection.model import HoldoutError
from accelsweep.features.projection.time_model import FITTED, FORMS, WORK_PARTS, Fitted, Spread
from accelsweep.records.run_record import NetworkFamily

AIMS = {"inference-amp": 0.15, "training-amp": 0.25, "training-fp32": 0.25}
COVERAGE = 0.88
WORST = 10
TIMES = {"inference-amp": 3.0, "training-amp": 1.0}
"""What the coefficients of a form are multiplied with to give the prior of the next: training has a backward pass."""


def main() -> None:
    """Fit, validate and print each form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--form", choices=list(FORMS))
    given = parser.parse_args()
    rates = [one for one in published_rates() if is_projected(one)]
    print("Sources:", *sources(), sep="\n  ")
    forms: list[Fitted] = []
    prior = np.ones(len(WORK_PARTS))
    for key in FORMS:
        table = rate_table([one for one in rates if one.form == key])
        if given.form in (None, key):
            forms.append(no_narrower(validated(key, table, refit_with(prior)), table, forms))
        if key in TIMES:
            prior = TIMES[key] * fit(table, prior).values
    if given.write and given.form is None:
        text = json.dumps({"forms": [one.model_dump(mode="json") for one in forms]}, indent=1)
        FITTED.write_text(text + "\n", encoding="utf-8")
        print(f"\nwritten: {FITTED}")


def no_narrower(one: Fitted, table: RateTable, others: list[Fitted]) -> Fitted:
    """Return a form whose few networks say little about others with intervals no narrower than the form's before it."""
    if len(set(table.models.tolist())) >= MIN_FAMILY_MODELS or not others:
        return one
    mine, theirs = one.spread, others[-1].spread
    wider = {name: max(getattr(mine, name), getattr(theirs, name)) for name in ("device", "within", "family")}
    return one.model_copy(update={"spread": mine.model_copy(update={**wider, "families": {}})})


def is_projected(one: PublishedRate) -> bool:
    """Return whether a rate belongs to what is projected: of recurrent networks there are three, and TF32 is needed."""
    peaks = datasheets()[one.device].flops_per_second
    return one.family is not NetworkFamily.recurrent and not peaks.keys().isdisjoint(FORMS[one.form].formats)


def validated(key: str, table: RateTable, refit: Refit) -> Fitted:
    """Print how wrong a form's projections are; return its fit to all rates."""
    print(f"\n== {FORMS[key].title}: {len(table.log_seconds)} rates, {len(set(table.devices.tolist()))} devices")
    by_device, by_family = leave_one_device_out(table, refit), leave_one_family_out(table, refit)
    halves = held_out_halves(table, refit)
    print_errors("device held out", table, by_device, halves)
    spread = error_spread(table, by_device, by_family, transfer(table, refit))
    unseen = np.full(len(by_family), np.hypot(spread.within, spread.family))
    known = ~np.isnan(by_family)
    print_errors("family held out", table.select(known), by_family[known], unseen[known], of="families")
    found = refit(table)
    print_fit(found, spread)
    families, unseen_devices = (
        held(table.select(known), by_family[known], unseen[known]),
        held(table, by_device, halves),
    )
    judge(key, unseen_devices)
    return Fitted(
        form=key,
        coefficients=tuple(float(f"{value:.4g}") for value in found.values),
        families={kind: round(value, 4) for kind, value in found.families.items()},
        spread=rounded(spread),
        unseen_devices=unseen_devices,
        unseen_families=families,
    )


def held_out_halves(table: RateTable, refit: Refit) -> Vector:
    """Return the half-width of each rate's interval, made without any rate of its device."""
    halves = np.empty(len(table.log_seconds))
    for name in sorted(set(table.devices.tolist())):
        own = table.devices == name
        rest = table.select(~own)
        spread = error_spread(rest, leave_one_device_out(rest, refit), leave_one_family_out(rest, refit), None)
        halves[own] = [spread.half(NetworkFamily(kind)) for kind in table.families[own]]
    return halves


def transfer(table: RateTable, refit: Refit) -> float | None:
    """Return the half-width for a rate that starts from another device's rate of the same model; None for too few.

    The new device is held out. The errors of pairs of devices show how much of a model's error both have in common.
    """
    names = sorted(set(table.devices.tolist()))
    within, medians = [], []
    for new, old in itertools.permutations(names, 2):
        errors = [error_by_model(table, name, refit(table.select(table.devices != new))) for name in (new, old)]
        common = sorted(errors[0].keys() & errors[1].keys())
        if len(common) < WORST:
            continue
        apart = np.array([errors[0][model] - errors[1][model] for model in common])
        medians.append(float(np.median(apart)))
        within.append(float(np.quantile(np.abs(apart - medians[-1]), 0.9)))
    if not medians:
        return None
    return float(np.hypot(np.median(within), 1.645 * np.sqrt(np.mean(np.square(medians)))))


def error_by_model(table: RateTable, device: str, found: Coefficients) -> dict[str, float]:
    """Return the log of projected over published time of each model on a device."""
    own = table.select(table.devices == device)
    errors = found.log_seconds(own) - own.log_seconds
    return dict(zip(own.models.tolist(), errors.tolist(), strict=True))


def held(table: RateTable, errors: Vector, halves: Vector) -> HoldoutError:
    """Return the median error of the rates, and the share of intervals that hold them."""
    return HoldoutError(
        count=len(errors),
        networks=len(set(table.models.tolist())),
        devices=len(set(table.devices.tolist())),
        median_error=round(float(np.median(np.abs(np.expm1(-errors)))), 4),
        coverage=round(float(np.mean(np.abs(errors) <= halves)), 4),
    )


def print_errors(title: str, table: RateTable, errors: Vector, halves: Vector, of: str = "devices") -> None:
    """Print errors by device and family, and the worst."""
    print(f"-- {title}\n   {'':28} rates  median error  interval holds  ratio 5 % .. 95 %")
    for column in dict.fromkeys((of, "families")):
        for name in sorted(set(getattr(table, column).tolist())):
            own = getattr(table, column) == name
            line(name, table.select(own), errors[own], halves[own])
    line("all", table, errors, halves)
    worst = np.argsort(-np.abs(errors))[:WORST]
    print("   worst ten:", end=" ")
    print(", ".join(f"{table.models[at]} on {table.devices[at]} x{np.exp(-errors[at]):.2f}" for at in worst))


def line(name: str, table: RateTable, errors: Vector, halves: Vector) -> None:
    """Print one row: the ratio is projected over published rate."""
    one, (low, high) = held(table, errors, halves), np.exp(np.quantile(-errors, [0.05, 0.95]))
    print(
        f"   {name:28} {one.count:5}  {one.median_error:11.1%}  {one.coverage:14.1%}  {low:8.2f} .. {high:.2f}"
        f"   (interval: x/ {np.exp(float(np.median(halves))):.2f})"
    )


def print_fit(found: Coefficients, spread: Spread) -> None:
    """Print the coefficients and the spread."""
    print("   coefficients:", ", ".join(f"{n} {v:.2f}" for n, v in zip(WORK_PARTS, found.values, strict=True)))
    moved = "none" if spread.transfer is None else f"x/ {np.exp(spread.transfer):.2f}"
    print(f"   device x/ {np.exp(spread.device):.2f}, unseen family x/ {np.exp(spread.family):.2f}, transfer {moved}")


def judge(key: str, devices: HoldoutError) -> None:
    """Print whether the aims are reached."""
    words = ["reached" if ok else "MISSED" for ok in (devices.median_error <= AIMS[key], devices.coverage >= COVERAGE)]
    print(f"   aim {AIMS[key]:.0%} median error on held-out devices: {devices.median_error:.1%}, {words[0]}")
    print(f"   aim {COVERAGE:.0%} of intervals hold: {devices.coverage:.1%}, {words[1]}")


def rounded(spread: Spread) -> Spread:
    """Return the spread with four digits."""
    families = {kind: round(half, 4) for kind, half in spread.families.items()}
    return Spread(
        device=round(spread.device, 4),
        within=round(spread.within, 4),
        families=families,
        family=round(spread.family, 4),
        transfer=None if spread.transfer is None else round(spread.transfer, 4),
    )


if __name__ == "__main__":
    main()
