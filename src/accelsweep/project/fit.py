"""Fits the model of `fitted` to published rates: a robust least-squares fit of the logarithm of the time per sample.

Each coefficient is positive, and drawn weakly to its prior. That is 1 for inference. For training it is three times
inference's, because a backward pass is twice a forward pass. The 32-bit form has few rates, and is drawn to the
coefficients of mixed precision. A family's term is the mean of its residuals, shrunk as if `FAMILY_PRIOR` further
models had none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from accelsweep.devices.datasheets import datasheets
from accelsweep.project.parts import FORMS, seconds
from accelsweep.project.published import Rate
from accelsweep.records.run_record import NetworkFamily

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
