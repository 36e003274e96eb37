"""Fits the time model to published rates: robust least squares on the logarithm of the time per sample.

Coefficients are positive, with a weak prior: 1 for inference, three times the inference coefficients for training (a
backward pass costs twice as much as a forward pass), and the mixed-precision coefficients for the 32-bit form, for
which few rates exist. A family's term is the mean of its residuals, shrunk as if there were `FAMILY_PRIOR` more models
with zero residuals.
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
import scipy  # its parts are imported when they are first used

from accelsweep.devices.datasheets import datasheets
from accelsweep.features.projection.time_model import FORMS, Spread, family, part_seconds
from accelsweep.records.run_record import NetworkFamily
from accelsweep.results import Traits

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
"""The columns of `models.csv` that follow the model name."""


@dataclass(frozen=True)
class PublishedRate:
    """A published rate: `form` is a key of `FORMS`, `device` one of `datasheets()`."""

    form: str
    device: str
    model: str
    batch: float
    samples_per_second: float
    traits: Traits
    family: NetworkFamily


def published_rates() -> list[PublishedRate]:
    """Return all rates, ordered by model."""
    traits: dict[str, Traits] = {}
    families: dict[str, NetworkFamily] = {}
    for row in csv.DictReader(MODELS_TABLE.read_text(encoding="utf-8").splitlines()):
        name = row["model"]
        counts: dict[str, Any] = {column: float(row[column]) for column in COUNTED_COLUMNS}
        traits[name] = Traits(**counts, recurrent=row["recurrent"] == "1")
        families[name] = family(traits[name])
    lines = [line for line in RATES_TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    columns = dict(line.split("=") for line in lines if line[1] == "=")
    rates = []
    for model, entries in (line.split(",") for line in lines if line[1] != "="):
        for entry in entries.split(";"):
            letter, batch, rate = entry.split()
            form, device = columns[letter].split()
            rates.append(PublishedRate(form, device, model, float(batch), float(rate), traits[model], families[model]))
    return rates


def sources() -> tuple[str, ...]:
    """Return the sources of the rates, one per line."""
    lines = RATES_TABLE.read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("# ") for line in lines if line.startswith("#"))


Vector = npt.NDArray[np.float64]

WEAK_PRIOR, STRONG_PRIOR = 0.003, 0.1
"""Weights of the prior, relative to those of the data."""

FAMILY_PRIOR = 20.0

SOFT_L1_SCALE = 0.3
"""Larger residuals are penalised linearly, because some published rates are outliers."""

FEW_RATES = 60
"""A form with fewer rates uses the strong prior."""


@dataclass(frozen=True)
class RateTable:
    """Published rates as arrays with one row per rate; `log_seconds` contains logarithms of seconds per sample."""

    parts: Vector
    log_seconds: Vector
    weights: Vector
    devices: npt.NDArray[np.str_]
    families: npt.NDArray[np.str_]
    models: npt.NDArray[np.str_]

    def select(self, keep: npt.NDArray[np.bool_]) -> RateTable:
        """Return the rates for which `keep` is true."""
        return RateTable(*(getattr(self, name)[keep] for name in RateTable.__annotations__))


@dataclass(frozen=True)
class Coefficients:
    """A fit: the parts' coefficients and the families' terms."""

    values: Vector
    families: Mapping[NetworkFamily, float]

    def log_seconds(self, table: RateTable, *, with_families: bool = True) -> Vector:
        """Return the logarithms of the projected seconds per sample."""
        terms = [self.families.get(NetworkFamily(kind), 0.0) if with_families else 0.0 for kind in table.families]
        logs: Vector = np.log(table.parts @ self.values) + np.array(terms)
        return logs


def rate_table(rates: Sequence[PublishedRate]) -> RateTable:
    """Return the rates of a form as arrays. A device's weight grows with the square root of its number of rates."""
    parts = [part_seconds(rate.traits, rate.batch, datasheets()[rate.device], FORMS[rate.form]) for rate in rates]
    names = np.array([rate.device for rate in rates])
    counts = {name: int((names == name).sum()) for name in set(names.tolist())}
    largest = max(counts.values())
    return RateTable(
        parts=np.array(parts),
        log_seconds=-np.log([rate.samples_per_second for rate in rates]),
        weights=np.array([min((largest / counts[name]) ** 0.5, 4.0) for name in names.tolist()]),
        devices=names,
        families=np.array([rate.family.value for rate in rates]),
        models=np.array([rate.model for rate in rates]),
    )


def fit(table: RateTable, prior: Vector) -> Coefficients:
    """Return the fit of `table`, regularised towards the coefficients `prior`."""
    strength = (WEAK_PRIOR if len(table.log_seconds) >= FEW_RATES else STRONG_PRIOR) * np.sqrt((table.weights**2).sum())
    start = np.log(prior)

    def residuals(logs: Vector) -> Vector:
        errors = table.weights * (np.log(table.parts @ np.exp(logs)) - table.log_seconds)
        return np.concatenate([errors, strength * (logs - start)])

    def jacobian(logs: Vector) -> Vector:
        times = table.parts * np.exp(logs)
        rows: Vector = (table.weights / times.sum(axis=1))[:, None] * times
        return np.vstack([rows, strength * np.eye(len(logs))])

    values = np.exp(
        scipy.optimize.least_squares(residuals, start, jac=jacobian, loss="soft_l1", f_scale=SOFT_L1_SCALE).x
    )
    errors = table.log_seconds - np.log(table.parts @ values)
    terms = {}
    for kind in NetworkFamily:
        own = np.clip(errors[table.families == kind.value], -1.0, 1.0)
        if len(own):
            terms[kind] = float(own.sum() / (len(own) + FAMILY_PRIOR))
    return Coefficients(values, terms)


MIN_FAMILY_MODELS = 10
"""A family with fewer models gets the interval of an unseen family."""

Refit = Callable[[RateTable], Coefficients]


def refit_with(prior: Vector) -> Refit:
    """Return a function that fits a table with this prior."""
    return lambda table: fit(table, prior)


def leave_one_device_out(table: RateTable, refit: Refit) -> Vector:
    """Return log(projected / published time) for each rate, from a fit that excludes its device."""
    errors = np.empty(len(table.log_seconds))
    for name in sorted(set(table.devices.tolist())):
        held_out = table.devices == name
        projected = refit(table.select(~held_out)).log_seconds(table.select(held_out))
        errors[held_out] = projected - table.log_seconds[held_out]
    return errors


def leave_one_family_out(table: RateTable, refit: Refit) -> Vector:
    """Return log(projected / published time) for each rate, fitted without its family; NaN if it is the only family."""
    errors = np.full(len(table.log_seconds), np.nan)
    for kind in sorted(set(table.families.tolist())):
        held_out = table.families == kind
        if not held_out.all():
            projected = refit(table.select(~held_out)).log_seconds(table.select(held_out), with_families=False)
            errors[held_out] = projected - table.log_seconds[held_out]
    return errors


def error_spread(table: RateTable, by_device: Vector, by_family: Vector, transfer: float | None) -> Spread:
    """Return the half-widths of 90 % intervals, based on the errors on held-out devices and families."""
    names = sorted(set(table.devices.tolist()))
    medians = {name: float(np.median(by_device[table.devices == name])) for name in names}
    centred = by_device - np.array([medians[name] for name in table.devices.tolist()])
    within = _half_width(centred)
    families = {}
    for kind in NetworkFamily:
        members = table.families == kind.value
        own = centred[members]
        if len(set(table.models[members].tolist())) >= MIN_FAMILY_MODELS:
            families[kind] = (len(own) * _half_width(own) + FAMILY_PRIOR * within) / (len(own) + FAMILY_PRIOR)
    kinds = [float(np.median(by_family[table.families == kind])) for kind in sorted(set(table.families.tolist()))]
    known = [median for median in kinds if not math.isnan(median)]
    return Spread(
        device=_t_half_width(list(medians.values())),
        within=within,
        families=families,
        family=_t_half_width(known) if len(known) > 1 else math.log(3),
        transfer=transfer,
    )


def _half_width(errors: Vector) -> float:
    low, high = np.quantile(errors, [0.05, 0.95])
    return float(max(-low, high, (high - low) / 2))


def _t_half_width(values: list[float]) -> float:
    """Return the 95 % quantile of t times the root mean square, assuming that the errors are centred on zero."""
    root = math.sqrt(sum(value**2 for value in values) / len(values))
    return float(scipy.special.stdtrit(len(values), 0.95)) * root
