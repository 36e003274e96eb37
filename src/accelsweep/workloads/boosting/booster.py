"""The protocol of a library of boosted trees, and the making of the one that a config names.

A library of one's own needs a class with `fit`, `predict` and `count`, and nothing of ours. Two further methods are
optional: `prepared` and `together`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from inspect import getattr_static
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accelsweep.config.schema import CellConfig
from accelsweep.errors import InputError, Unsupported
from accelsweep.workloads.instantiate import build_target, target_parameters

Features = NDArray[np.float32]
Labels = NDArray[np.int64]
Scores = NDArray[np.floating[Any]]
FitOnce = Callable[[], object]
"""A fit of rows that it knows already; each call begins anew."""

METHODS = ("fit", "predict", "count")


@runtime_checkable
class Booster(Protocol):
    """A trainer of trees.

    It is made with the keys of `model`. Those of `device` (`cpu`, `cuda:0`), `threads`, `seed` and `classes` that its
    class names as arguments are given too. A class that names no `device` computes on the CPU.
    """

    def fit(self, features: Features, labels: Labels) -> None:
        """Train anew on features (rows, columns) and classes (rows,), which count from 0. Return when it is done."""

    def predict(self, features: Features) -> Scores:
        """Return the last fit's scores of class 1, (rows,), or the probabilities of all classes, (rows, classes)."""

    def count(self) -> int:
        """Return the rounds of the last fit: each of them passes over all rows once."""


@runtime_checkable
class Prepares(Protocol):
    """Optional: rows in a form of the library's own, made once, so that fits can be timed without it."""

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Return the fit of these rows; None where `fit` is to prepare them each time."""


@runtime_checkable
class Shares(Protocol):
    """Optional: fits by several ranks, each of which has other rows."""

    def together(self, rank: int, size: int, first: Callable[[Any], Any]) -> AbstractContextManager[None]:
        """Return a context in which fits are those of all ranks; `first` hands rank 0's value to every rank."""


def build_booster(config: CellConfig, **given: Any) -> Booster:
    """Return the library that `config.model` names; `given` are the arguments of `Booster`'s class, all of them.

    Raises InputError where it lacks a method, Unsupported where it is to use another device than the CPU and cannot.
    """
    settings = dict(config.model)
    named, target = target_parameters(settings), config.model_target
    if given["device"] != "cpu" and "device" not in named:
        raise Unsupported(f"{target} names no argument `device`, so it computes on the CPU: set accelerator=cpu")
    booster = build_target({**{name: given[name] for name in given if name in named}, **settings}, "model")
    if not isinstance(booster, Booster):
        lacks = [name for name in METHODS if getattr_static(booster, name, None) is None]
        raise InputError(
            f"task=boosting: model._target_={target} has no {' and no '.join(lacks)}: take model=xgboost, "
            "model=lightgbm or model=hist_gradient_boosting, or define what docs/boosting.md says"
        )
    return booster


def fit_of(booster: Booster, features: Features, labels: Labels) -> tuple[FitOnce, bool]:
    """Return the fit of these rows, and whether they were prepared for it now, once."""
    prepared = booster.prepared(features, labels) if isinstance(booster, Prepares) else None
    return (partial(booster.fit, features, labels), False) if prepared is None else (prepared, True)
