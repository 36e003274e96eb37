"""scikit-learn's HistGradientBoostingClassifier for `task: boosting`, on the CPU. It bins the rows in each fit.

https://scikit-learn.org/stable/modules/ensemble.html#histogram-based-gradient-boosting
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelsweep.errors import Unsupported
from accelsweep.workloads.boosting.booster import Features, Labels, Scores
from accelsweep.workloads.boosting.preparing import Preparing, prepares_apart


class HistGradientBoosting:
    """Trees by scikit-learn, without its early stopping, which would begin at 10 000 rows."""

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
        """`parameters` are further arguments of the classifier. Raises Unsupported for `prepare=apart`."""
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

        with threadpool_limits(self._threads, user_api="openmp"):  # it has no argument for them
            self._model.fit(features, labels)

    def predict(self, features: Features) -> Scores:
        """Return the probabilities of class 1, or of all classes."""
        found: Scores = self._model.predict_proba(features)
        return found[:, 1] if found.shape[1] == 2 else found

    def count(self) -> int:
        """Return the rounds of the trained model."""
        return int(self._model.n_iter_)
