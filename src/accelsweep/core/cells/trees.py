"""The libraries of boosted trees that we ship a class for: what each can do, known without importing any of them."""

from __future__ import annotations

from typing import NamedTuple


class TreeLibrary(NamedTuple):
    """A library: its name, its module, its accelerators here, and whether several ranks train one model."""

    name: str
    module: str
    accelerators: tuple[str, ...]
    shares: bool


LIBRARIES = {
    "accelsweep.workloads.boosting.xgboost_trees.XGBoost": TreeLibrary("XGBoost", "xgboost", ("cpu", "cuda"), True),
    "accelsweep.workloads.boosting.lightgbm_trees.LightGBM": TreeLibrary("LightGBM", "lightgbm", ("cpu",), False),
    "accelsweep.workloads.boosting.sklearn_trees.HistGradientBoosting": TreeLibrary(
        "scikit-learn", "sklearn", ("cpu",), False
    ),
}
"""`model._target_` -> its library. A class of the user's own is not here: its runs tell what it cannot do."""
