"""What the libraries of boosted trees that we ship cannot do: known without importing any of them."""

from __future__ import annotations

from typing import NamedTuple

from accelsweep.base.extras import trees_missing, trees_without_cuda
from accelsweep.core.config import CellConfig
from accelsweep.core.settings import Site


class Library(NamedTuple):
    """A library of trees: its name, its module, its accelerators, and whether several ranks train together."""

    name: str
    module: str
    accelerators: tuple[str, ...]
    shares: bool


LIBRARIES = {
    "accelsweep.workloads.boosting.xgboost_trees.XGBoost": Library("XGBoost", "xgboost", ("cpu", "cuda"), shares=True),
    "accelsweep.workloads.boosting.lightgbm_trees.LightGBM": Library("LightGBM", "lightgbm", ("cpu",), shares=False),
    "accelsweep.workloads.boosting.sklearn_trees.HistGradientBoosting": Library(
        "scikit-learn", "sklearn", ("cpu",), shares=False
    ),
}
"""`model._target_` -> its library. A class of the user's own is not here: its runs tell what it cannot do."""


def cannot_boost(config: CellConfig, site: Site) -> str | None:
    """Return why trees cannot be grown so. Only where this machine measures is it asked for the library."""
    if config.task != "boosting":
        return None
    if config.precision != "32-true":
        return f"precision={config.precision}: in task=boosting the library chooses number formats; leave it out"
    library = LIBRARIES.get(config.model_target)
    if library is None:
        return None
    if config.accelerator not in library.accelerators:
        return f"accelerator={config.accelerator}: {library.name} has {' and '.join(library.accelerators)} here"
    if config.world_size > 1 and not library.shares:
        return f"{library.name} trains in one process here, not in {config.world_size}: use threads"
    return _absent(library, config) if site.probe else None


def _absent(library: Library, config: CellConfig) -> str | None:
    if remedy := trees_missing(library.module):
        return f"task=boosting needs {library.name}: {remedy}"
    without = trees_without_cuda(library.module) if config.accelerator == "cuda" else None
    return None if without is None else f"accelerator=cuda: {without}"
