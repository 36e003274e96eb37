"""Configs that boosted trees cannot be grown with, as far as known without importing a library."""

from __future__ import annotations

from typing import NamedTuple

from accelsweep.config.schema import CellConfig
from accelsweep.config.site import Site
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError
from accelsweep.installation import boosting_install_command, cuda_boosting_remedy

# The libraries of boosted trees that we ship a class for: what each can do, known without importing any of them.


class TreeLibrary(NamedTuple):
    """A library: its name, its module, its accelerators here, and whether several ranks train one model."""

    name: str
    module: str
    accelerators: tuple[str, ...]
    shares: bool


LIBRARIES = {
    "accelsweep.features.boosting.boosters.XGBoost": TreeLibrary("XGBoost", "xgboost", ("cpu", "cuda"), True),
    "accelsweep.features.boosting.boosters.LightGBM": TreeLibrary("LightGBM", "lightgbm", ("cpu",), False),
    "accelsweep.features.boosting.boosters.HistGradientBoosting": TreeLibrary(
        "scikit-learn", "sklearn", ("cpu",), False
    ),
}
"""`model._target_` -> its library. A class of the user's own is not here: its runs tell what it cannot do."""


def cannot_boost(config: CellConfig, site: Site) -> str | None:
    """Return why trees cannot be grown so. Only where this machine measures is it asked for the library."""
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


def _absent(library: TreeLibrary, config: CellConfig) -> str | None:
    if remedy := boosting_install_command(library.module):
        return f"task=boosting needs {library.name}: {remedy}"
    without = cuda_boosting_remedy(library.module) if config.accelerator == "cuda" else None
    return None if without is None else f"accelerator=cuda: {without}"


# The thin typed check of a config: the keys that accelsweep itself reads, and nothing below `model` or `data`.

TREES = "accelsweep.features.boosting."

OUR_CLASSES = "accelsweep."


def check(config: CellConfig, file_of: FileOf) -> None:
    """Raise InputError where trees and the task do not fit each other, or the quality is another than theirs."""
    target, metric = config.model_target, config.measure.quality_metric
    if config.task != "boosting":
        if target.startswith(TREES):
            raise InputError(f"{target} grows trees, which has no training step: set task=boosting with it")
        return
    if target.startswith(OUR_CLASSES) and not target.startswith(TREES):
        raise InputError(
            f"task=boosting grows trees, and {target} is a network or a kernel: take model=xgboost, model=lightgbm or "
            "model=hist_gradient_boosting"
        )
    if metric != "AUC" or config.measure.better != "max":
        raise InputError(
            f"task=boosting measures the area under the curve of held-out rows, and measure.quality_metric={metric}"
            f" is another quality: take measure=boosting; look in {file_of('measure.quality_metric')}"
        )


def version_of(config: CellConfig) -> str | None:
    """Return the module of the library behind one of our classes: its version decides how fast trees grow."""
    library = LIBRARIES.get(config.model_target)
    return None if library is None else library.module
