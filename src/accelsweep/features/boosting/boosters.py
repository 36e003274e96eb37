"""The boosted-tree libraries for `task: boosting`, behind one protocol: XGBoost, LightGBM and scikit-learn.

XGBoost and LightGBM are extras, so each is imported only when its class is instantiated.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from inspect import getattr_static
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.features.boosting.libraries import install_command
from accelsweep.run_config import SettingConfig
from accelsweep.workloads.targets import build_target, target_parameters

Features = NDArray[np.float32]

Labels = NDArray[np.int64]

Scores = NDArray[np.floating[Any]]

FitOnce = Callable[[], object]
"""Fits prepared rows from scratch on each call."""

METHODS = ("fit", "predict", "count")


@runtime_checkable
class Booster(Protocol):
    """Trains boosted trees; instantiated with the keys of `model`.

    `device` (`cpu`, `cuda:0`), `threads`, `seed` and `classes` are added if the class accepts these parameters. A class
    without a `device` parameter runs on the CPU.
    """

    def fit(self, features: Features, labels: Labels) -> None:
        """Train from scratch on features (rows, columns) and zero-based classes (rows,)."""

    def predict(self, features: Features) -> Scores:
        """Return the last fit's scores of class 1 (rows,), or probabilities of all classes (rows, classes)."""

    def count(self) -> int:
        """Return the number of boosting rounds in the last fit; each round is one pass over all rows."""


@runtime_checkable
class Prepares(Protocol):
    """Optional: converts rows to the library's format once, so that fits are timed without the conversion."""

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Return a function that fits these rows; None if `fit` should convert them each time."""


@runtime_checkable
class Shares(Protocol):
    """Optional: distributed fits by several ranks, each with its own rows."""

    def together(self, rank: int, size: int, first: Callable[[Any], Any]) -> AbstractContextManager[None]:
        """Return a context for distributed fits; `first` broadcasts rank 0's value."""


def build_booster(config: SettingConfig, **given: Any) -> Booster:
    """Instantiate the class of `config.model`; `given` contains the arguments that any `Booster` may accept.

    Raises InputError if the class lacks a method, Unsupported if it cannot use the accelerator.
    """
    settings = dict(config.model)
    named, target = target_parameters(settings), config.model_target
    if given["device"] != "cpu" and "device" not in named:
        raise Unsupported(f"{target} has no argument `device`, so it runs on the CPU: set accelerator=cpu")
    booster = build_target({**{name: given[name] for name in given if name in named}, **settings}, "model")
    if not isinstance(booster, Booster):
        lacks = [name for name in METHODS if getattr_static(booster, name, None) is None]
        raise InputError(
            f"task=boosting: model._target_={target} has no {' and no '.join(lacks)}: use model=xgboost, "
            "model=lightgbm or model=hist_gradient_boosting, or define what docs/boosting.md describes"
        )
    return booster


def fit_of(booster: Booster, features: Features, labels: Labels) -> tuple[FitOnce, bool]:
    """Return a function that fits these rows, and whether they were prepared in advance."""
    prepared = booster.prepared(features, labels) if isinstance(booster, Prepares) else None
    return (partial(booster.fit, features, labels), False) if prepared is None else (prepared, True)


Preparing = Literal["apart", "in_fit"]
"""Convert rows to the library's format `apart` (once before the window, timed separately) or `in_fit` (per fit)."""


def prepares_apart(prepare: str) -> bool:
    """Return whether rows are prepared once. Raises InputError for an unknown value."""
    if prepare not in ("apart", "in_fit"):
        hint = nearest(prepare, ("apart", "in_fit"))
        raise InputError(f"model.prepare={prepare}: must be apart or in_fit{hint}")
    return prepare == "apart"


class XGBoost:
    """Trees trained with `xgboost.train` on CPUs or GPUs (T. Chen, C. Guestrin, KDD 2016).

    Other parameters keep their defaults. https://xgboost.readthedocs.io/en/stable/parameter.html
    """

    def __init__(
        self,
        rounds: int = 100,
        max_depth: int = 6,
        learning_rate: float = 0.1,
        max_bin: int = 255,
        tree_method: str = "hist",
        prepare: Preparing = "apart",
        parameters: Mapping[str, Any] | None = None,
        device: str = "cpu",
        threads: int = 1,
        seed: int = 0,
        classes: int = 2,
    ) -> None:
        """`parameters` are passed to XGBoost. Raises Unsupported if this build does not support the `device`."""
        if remedy := install_command("xgboost"):
            raise Unsupported(f"model=xgboost needs XGBoost: {remedy}")
        import xgboost

        self._library = xgboost
        _refuse_device(device, xgboost.__version__, xgboost.build_info())
        two, several = {"objective": "binary:logistic"}, {"objective": "multi:softprob", "num_class": classes}
        self._rounds, self._apart = rounds, prepares_apart(prepare)
        self._parameters: dict[str, Any] = {
            **(two if classes == 2 else several),
            "max_depth": max_depth,
            "learning_rate": learning_rate,
            "max_bin": max_bin,
            "tree_method": tree_method,
            "device": device,
            "nthread": threads,
            "seed": seed,
            **(parameters or {}),
        }
        self._booster: Any = None

    def fit(self, features: Features, labels: Labels) -> None:
        """Convert the rows and train."""
        with _words_of(self._library):
            self._train(self._matrix(features, labels))

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Bin the rows on the device and return a function that fits them; None if `prepare=in_fit`."""
        if not self._apart:
            return None
        with _words_of(self._library):
            return partial(self._train, self._matrix(features, labels))

    def predict(self, features: Features) -> Scores:
        """Return the scores of class 1, or the probabilities of all classes."""
        with _words_of(self._library):
            scores: Scores = self._booster.predict(self._library.DMatrix(features, nthread=self._parameters["nthread"]))
        return scores

    def count(self) -> int:
        """Return the number of rounds in the trained model."""
        return int(self._booster.num_boosted_rounds())

    @contextmanager
    def together(self, rank: int, size: int, first: Callable[[Any], Any]) -> Iterator[None]:
        """Join XGBoost's communicator. Its tracker runs in a thread on rank 0."""
        from xgboost import collective
        from xgboost.tracker import RabitTracker

        host = socket.gethostbyname(os.environ["MASTER_ADDR"])
        tracker = RabitTracker(n_workers=size, host_ip=host) if rank == 0 else None
        if tracker is not None:
            tracker.start()
        with collective.CommunicatorContext(**first(tracker.worker_args() if tracker is not None else None)):
            yield
        if tracker is not None:
            tracker.wait_for()

    def _matrix(self, features: Features, labels: Labels) -> Any:
        threads, bins = self._parameters["nthread"], self._parameters["max_bin"]
        if self._parameters["tree_method"] != "hist":
            return self._library.DMatrix(features, labels, nthread=threads)
        return self._library.QuantileDMatrix(features, labels, nthread=threads, max_bin=bins)

    def _train(self, matrix: Any) -> None:
        first = self._booster is None
        with _words_of(self._library):
            self._booster = self._library.train(self._parameters, matrix, num_boost_round=self._rounds)
        if first and (used := device_of(self._booster)) != self._parameters["device"]:
            raise Unsupported(f"XGBoost trained on {used}, not on {self._parameters['device']}")


def device_of(booster: Any) -> str:
    """Return the device on which a model was actually trained: XGBoost falls back to the CPU without an error."""
    return str(json.loads(booster.save_config())["learner"]["generic_param"]["device"])


def _refuse_device(device: str, version: str, build: Mapping[str, Any]) -> None:
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise Unsupported(f"accelerator={kind}: XGBoost supports only cpu and cuda")
    if kind == "cuda" and not build.get("USE_CUDA"):
        raise Unsupported(
            f"accelerator=cuda: XGBoost {version} was built without CUDA: pip uninstall xgboost-cpu, then pip install "
            "xgboost"
        )


@contextmanager
def _words_of(library: Any) -> Iterator[None]:
    """Convert XGBoost's errors, which are ValueErrors, to RuntimeErrors, which are classified by their message."""
    try:
        yield
    except library.core.XGBoostError as error:
        raise RuntimeError(str(error)) from error


class LightGBM:
    """Trees trained with `lightgbm.train` on the CPU; its wheels lack CUDA support (G. Ke et al., NIPS 2017)."""

    def __init__(
        self,
        rounds: int = 100,
        max_depth: int = 6,
        leaves: int = 64,
        learning_rate: float = 0.1,
        max_bin: int = 255,
        prepare: Preparing = "apart",
        parameters: Mapping[str, Any] | None = None,
        threads: int = 1,
        seed: int = 0,
        classes: int = 2,
    ) -> None:
        """`parameters` are passed to LightGBM. Raises Unsupported if it is not installed."""
        if remedy := install_command("lightgbm"):
            raise Unsupported(f"model=lightgbm needs LightGBM: {remedy}")
        import lightgbm

        self._library = lightgbm
        self._rounds, self._apart = rounds, prepares_apart(prepare)
        self._parameters: dict[str, Any] = {
            **({"objective": "binary"} if classes == 2 else {"objective": "multiclass", "num_class": classes}),
            "max_depth": max_depth,
            "num_leaves": leaves,
            "learning_rate": learning_rate,
            "max_bin": max_bin,
            "num_threads": threads,
            "seed": seed,
            "verbosity": -1,
            **(parameters or {}),
        }
        self._booster: Any = None

    def fit(self, features: Features, labels: Labels) -> None:
        """Bin the rows and train."""
        self._train(self._bins(features, labels))

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Bin the rows and return a function that fits them; None if `prepare=in_fit`."""
        return partial(self._train, self._bins(features, labels)) if self._apart else None

    def predict(self, features: Features) -> Scores:
        """Return the scores of class 1, or the probabilities of all classes."""
        scores: Scores = self._booster.predict(features, num_threads=self._parameters["num_threads"])
        return scores

    def count(self) -> int:
        """Return the model's number of rounds; training stops early once no split improves the loss."""
        return int(self._booster.current_iteration())

    def _bins(self, features: Features, labels: Labels) -> Any:
        return self._library.Dataset(features, labels, params=self._parameters).construct()

    def _train(self, bins: Any) -> None:
        self._booster = self._library.train(self._parameters, bins, num_boost_round=self._rounds)


class HistGradientBoosting:
    """Trees trained with scikit-learn's HistGradientBoostingClassifier on the CPU, without early stopping.

    It bins the rows in each fit.
    """

    def __init__(
        self,
        rounds: int = 100,
        max_depth: int = 6,
        leaves: int = 64,
        learning_rate: float = 0.1,
        max_bin: int = 255,
        prepare: Preparing = "in_fit",
        parameters: Mapping[str, Any] | None = None,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        """`parameters` are passed to the classifier. Raises Unsupported for `prepare=apart`."""
        if prepares_apart(prepare):
            raise Unsupported("model.prepare=apart: scikit-learn bins the rows in each fit; set model.prepare=in_fit")
        from sklearn.ensemble import HistGradientBoostingClassifier

        self._model = HistGradientBoostingClassifier(
            max_iter=rounds,
            max_depth=max_depth,
            max_leaf_nodes=leaves,
            learning_rate=learning_rate,
            max_bins=max_bin,
            early_stopping=False,
            random_state=seed,
            **(parameters or {}),
        )
        self._threads = threads

    def fit(self, features: Features, labels: Labels) -> None:
        """Bin the rows and train."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(self._threads, user_api="openmp"):  # the class has no parameter for threads
            self._model.fit(features, labels)

    def predict(self, features: Features) -> Scores:
        """Return the probabilities of class 1, or of all classes."""
        scores: Scores = self._model.predict_proba(features)
        return scores[:, 1] if scores.shape[1] == 2 else scores

    def count(self) -> int:
        """Return the number of rounds in the trained model."""
        return int(self._model.n_iter_)
