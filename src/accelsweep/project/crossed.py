"""The error of the fit on data that it has not seen: leave one device out, leave one family out.

An interval has two parts. A device as a whole lies off by the spread of the devices' medians, and t's quantile counts
how few devices that spread is from. Within a device, models lie off by the spread of their residuals. Where a device is
held out, its interval comes from the other devices only, so that the printed coverage is honest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from accelsweep.project.fit import FAMILY_PRIOR, Coefficients, RateTable, Vector, fit
from accelsweep.project.fitted import Spread
from accelsweep.records.run_record import NetworkFamily

KNOWN = 10
"""A family of fewer models is as good as not seen: its interval is that of an unseen family."""

Refit = Callable[[RateTable], Coefficients]


def refit_with(prior: Vector) -> Refit:
    """Return a fit that only needs the table."""
    return lambda table: fit(table, prior)


def without_each_device(table: RateTable, refit: Refit) -> Vector:
    """Return the logarithms of projected over published time, each from a fit without its device."""
    errors = np.empty(len(table.log_seconds))
    for name in sorted(set(table.devices.tolist())):
        own = table.devices == name
        errors[own] = refit(table.only(~own)).log_seconds(table.only(own)) - table.log_seconds[own]
    return errors


def without_each_family(table: RateTable, refit: Refit) -> Vector:
    """Return the same from fits without the family; a family of all rates has no such error (NaN)."""
    errors = np.full(len(table.log_seconds), np.nan)
    for kind in sorted(set(table.families.tolist())):
        own = table.families == kind
        if not own.all():
            found = refit(table.only(~own)).log_seconds(table.only(own), with_families=False)
            errors[own] = found - table.log_seconds[own]
    return errors


def spread_of(table: RateTable, by_device: Vector, by_family: Vector, transfer: float | None) -> Spread:
    """Return the half-widths of 90 % intervals, from errors on unseen devices and families."""
    names = sorted(set(table.devices.tolist()))
    medians = {name: float(np.median(by_device[table.devices == name])) for name in names}
    centred = by_device - np.array([medians[name] for name in table.devices.tolist()])
    within = _half(centred)
    families = {}
    for kind in NetworkFamily:
        held = table.families == kind.value
        own = centred[held]
        if len(set(table.models[held].tolist())) >= KNOWN:
            families[kind] = (len(own) * _half(own) + FAMILY_PRIOR * within) / (len(own) + FAMILY_PRIOR)
    kinds = [float(np.median(by_family[table.families == kind])) for kind in sorted(set(table.families.tolist()))]
    seen = [one for one in kinds if not math.isnan(one)]
    return Spread(
        device=_of_few(list(medians.values())),
        within=within,
        families=families,
        family=_of_few(seen) if len(seen) > 1 else math.log(3),
        transfer=transfer,
    )


def _half(errors: Vector) -> float:
    low, high = np.quantile(errors, [0.05, 0.95])
    return float(max(-low, high, (high - low) / 2))


def _of_few(values: list[float]) -> float:
    """Return t's 95 % quantile times the root mean square around zero, where a fit without bias would lie."""
    root = math.sqrt(sum(value**2 for value in values) / len(values))
    return float(special.stdtrit(len(values), 0.95)) * root
