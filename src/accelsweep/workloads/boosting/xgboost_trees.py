"""XGBoost (T. Chen, C. Guestrin, KDD 2016) for `task: boosting`: on the CPU, on a GPU, and on several of either.

The library is imported when the class is used: it is an extra. https://xgboost.readthedocs.io/en/stable/parameter.html
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from accelsweep.errors import Unsupported
from accelsweep.installation import boosting_install_command
from accelsweep.workloads.boosting.booster import Features, FitOnce, Labels, Scores
from accelsweep.workloads.boosting.preparing import Preparing, prepares_apart


class XGBoost:
    """Trees by `xgboost.train`, with all other parameters as the library has them."""

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
        """`parameters` are further ones of XGBoost's. Raises Unsupported where this build has no such `device`."""
        if remedy := boosting_install_command("xgboost"):
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
        """Bring the rows into XGBoost's form and train."""
        with _words_of(self._library):
            self._train(self._matrix(features, labels))

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Return the fit of rows that lie in bins, on the device, from now on; None with `prepare=in_fit`."""
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
        """Return the rounds of the trained model."""
        return int(self._booster.num_boosted_rounds())

    @contextmanager
    def together(self, rank: int, size: int, first: Callable[[Any], Any]) -> Iterator[None]:
        """Join XGBoost's own group of ranks, whose tracker is a thread of rank 0."""
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
        known = self._parameters
        if known["tree_method"] != "hist":
            return self._library.DMatrix(features, labels, nthread=known["nthread"])
        return self._library.QuantileDMatrix(features, labels, nthread=known["nthread"], max_bin=known["max_bin"])

    def _train(self, matrix: Any) -> None:
        first = self._booster is None
        with _words_of(self._library):
            self._booster = self._library.train(self._parameters, matrix, num_boost_round=self._rounds)
        if first and (used := device_of(self._booster)) != self._parameters["device"]:
            raise Unsupported(f"XGBoost trained on {used}, not on {self._parameters['device']}")


def device_of(booster: Any) -> str:
    """Return the device that a trained model says it was trained on; XGBoost falls back to the CPU without an error."""
    return str(json.loads(booster.save_config())["learner"]["generic_param"]["device"])


def _refuse_device(device: str, version: str, build: Mapping[str, Any]) -> None:
    kind = device.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise Unsupported(f"accelerator={kind}: XGBoost has cpu and cuda")
    if kind == "cuda" and not build.get("USE_CUDA"):
        raise Unsupported(
            f"accelerator=cuda: XGBoost {version} was built without CUDA: pip uninstall xgboost-cpu, then pip install "
            "xgboost"
        )


@contextmanager
def _words_of(library: Any) -> Iterator[None]:
    """Let XGBoost's errors, which are ValueErrors, be told by their words, as those of torch are."""
    try:
        yield
    except library.core.XGBoostError as error:
        raise RuntimeError(str(error)) from error
