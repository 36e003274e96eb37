"""Fits the model of `fitted` to published rates: a robust least-squares fit of the logarithm of the time per sample.

Each coefficient is positive, and drawn weakly to its prior. That is 1 for inference. For training it is three times
inference's, because a backward pass is twice a forward pass. The 32-bit form has few rates, and is drawn to the
coefficients of mixed precision. A family's term is the mean of its residuals, shrunk as if `FAMILY_PRIOR` further
models had none.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.optimize import least_squares

from accelsweep.devices.datasheets import datasheets
from accelsweep.features.projection.time_model import FORMS, Spread, family, seconds
from accelsweep.records.run_record import NetworkFamily, Traits

# Rates that others published, with the traits of their models: `data/models.csv` and `data/rates.csv`.

MODELS_TABLE = Path(__file__).parent / "data" / "models.csv"

RATES_TABLE = Path(__file__).parent / "data" / "rates.csv"

COUNTED_COLUMNS = (
    "flops_convolution",
    "flops_grouped",
    "flops_product",
    "flops_attention",
    "activations",
    "others",
    "kernels",
    "parameters",
)
"""The columns of `models.csv` after the model's name and the length of its input's side."""


@dataclass(frozen=True)
class Rate:
    """A published rate in samples per second: `form` is a key of `parts.FORMS`, `device` one of `devices.devices`."""

    form: str
    device: str
    model: str
    batch: float
    samples_per_second: float
    traits: Traits
    family: NetworkFamily


def published() -> list[Rate]:
    """Return all rates, in the order of their models."""
    models = {row["model"]: _traits(row) for row in _rows(MODELS_TABLE)}
    kinds = {name: family(traits) for name, traits in models.items()}
    lines = [line for line in RATES_TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    columns = dict(line.split("=") for line in lines if line[1] == "=")
    found = []
    for model, entries in (line.split(",") for line in lines if line[1] != "="):
        for entry in entries.split(";"):
            letter, batch, rate = entry.split()
            form, device = columns[letter].split()
            found.append(Rate(form, device, model, float(batch), float(rate), models[model], kinds[model]))
    return found


def sources() -> tuple[str, ...]:
    """Return the sources of the rates, a line each."""
    lines = RATES_TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("# ") for line in lines if line.startswith("#"))


def _traits(row: dict[str, str]) -> Traits:
    counts: dict[str, Any] = {name: float(row[name]) for name in COUNTED_COLUMNS}
    return Traits(**counts, recurrent=row["recurrent"] == "1")


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


Vector = npt.NDArray[np.float64]

WEAK, STRONG = 0.003, 0.1
"""Weights of the prior, relative to the data's."""

FAMILY_PRIOR = 20.0

SOFT = 0.3
"""Residuals beyond this count linearly: some published rates are odd."""

FEW_RATES = 60
"""A form with fewer rates has the strong prior."""


@dataclass(frozen=True)
class RateTable:
    """Published rates as arrays: the parts of each, the logarithm of its seconds per sample, its device, its family."""

    parts: Vector
    log_seconds: Vector
    weights: Vector
    devices: npt.NDArray[np.str_]
    families: npt.NDArray[np.str_]
    models: npt.NDArray[np.str_]

    def only(self, keep: npt.NDArray[np.bool_]) -> RateTable:
        """Return the rates for which `keep` is true."""
        return RateTable(*(getattr(self, name)[keep] for name in RateTable.__annotations__))


@dataclass(frozen=True)
class Coefficients:
    """A fit: the coefficients of the parts, and the families' terms."""

    values: Vector
    families: Mapping[NetworkFamily, float]

    def log_seconds(self, table: RateTable, *, with_families: bool = True) -> Vector:
        """Return the projected logarithms of the seconds per sample."""
        terms = [self.families.get(NetworkFamily(kind), 0.0) if with_families else 0.0 for kind in table.families]
        found: Vector = np.log(table.parts @ self.values) + np.array(terms)
        return found


def table_of(rates: Sequence[Rate]) -> RateTable:
    """Return the rates of one form as arrays. All devices together weigh as much as their square roots of counts."""
    parts = [seconds(one.traits, one.batch, datasheets()[one.device], FORMS[one.form]) for one in rates]
    names = np.array([one.device for one in rates])
    counts = {name: int((names == name).sum()) for name in set(names.tolist())}
    largest = max(counts.values())
    return RateTable(
        parts=np.array(parts),
        log_seconds=-np.log([one.samples_per_second for one in rates]),
        weights=np.array([min((largest / counts[name]) ** 0.5, 4.0) for name in names.tolist()]),
        devices=names,
        families=np.array([one.family.value for one in rates]),
        models=np.array([one.model for one in rates]),
    )


def fit(table: RateTable, prior: Vector) -> Coefficients:
    """Return the fit of `table`, drawn to the coefficients `prior`."""
    strength = (WEAK if len(table.log_seconds) >= FEW_RATES else STRONG) * np.sqrt((table.weights**2).sum())
    start = np.log(prior)

    def residuals(logs: Vector) -> Vector:
        own = table.weights * (np.log(table.parts @ np.exp(logs)) - table.log_seconds)
        return np.concatenate([own, strength * (logs - start)])

    def slopes(logs: Vector) -> Vector:
        own = table.parts * np.exp(logs)
        rows: Vector = (table.weights / own.sum(axis=1))[:, None] * own
        return np.vstack([rows, strength * np.eye(len(logs))])

    found = least_squares(residuals, start, jac=slopes, loss="soft_l1", f_scale=SOFT)
    values = np.exp(found.x)
    return Coefficients(values, _family_terms(table, np.log(table.parts @ values) - table.log_seconds))


def _family_terms(table: RateTable, residuals: Vector) -> dict[NetworkFamily, float]:
    terms = {}
    for kind in NetworkFamily:
        own = -np.clip(residuals[table.families == kind.value], -1.0, 1.0)
        if len(own):
            terms[kind] = float(own.sum() / (len(own) + FAMILY_PRIOR))
    return terms


# The error of the fit on data that it has not seen: leave one device out, leave one family out.

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
