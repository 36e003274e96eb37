"""LightGBM (G. Ke et al., NIPS 2017) for `task: boosting`, on the CPU: its wheels have no CUDA.

https://lightgbm.readthedocs.io/en/stable/Parameters.html
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from accelsweep.errors import Unsupported
from accelsweep.installation import boosting_install_command
from accelsweep.workloads.boosting.booster import Features, FitOnce, Labels, Scores
from accelsweep.workloads.boosting.preparing import Preparing, prepares_apart


class LightGBM:
    """Trees by `lightgbm.train`, with all other parameters as the library has them."""

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
        """`parameters` are further ones of LightGBM's. Raises Unsupported where it is not installed."""
        if remedy := boosting_install_command("lightgbm"):
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
        """Bring the rows into bins and train."""
        self._train(self._bins(features, labels))

    def prepared(self, features: Features, labels: Labels) -> FitOnce | None:
        """Return the fit of rows that lie in bins from now on; None with `prepare=in_fit`."""
        return partial(self._train, self._bins(features, labels)) if self._apart else None

    def predict(self, features: Features) -> Scores:
        """Return the scores of class 1, or the probabilities of all classes."""
        scores: Scores = self._booster.predict(features, num_threads=self._parameters["num_threads"])
        return scores

    def count(self) -> int:
        """Return the rounds of the trained model; it stops early where no split gains anything."""
        return int(self._booster.current_iteration())

    def _bins(self, features: Features, labels: Labels) -> Any:
        return self._library.Dataset(features, labels, params=self._parameters).construct()

    def _train(self, bins: Any) -> None:
        self._booster = self._library.train(self._parameters, bins, num_boost_round=self._rounds)
