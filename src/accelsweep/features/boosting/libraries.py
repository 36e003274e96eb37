"""What boosted-tree libraries support, and config checks, without importing any of the libraries."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import NamedTuple

from accelsweep.config.site import Site
from accelsweep.config.value_errors import FileOf
from accelsweep.errors import InputError
from accelsweep.run_config import SettingConfig


class TreeLibrary(NamedTuple):
    """A library that we provide a class for; `shares` is true if several ranks can train one model."""

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
"""`model._target_` -> library. The limits of a user-defined class become apparent only when it runs."""


_EXTRAS = {"xgboost": "boosting", "lightgbm": "lightgbm"}
"""Boosted-tree module -> the extra that installs it."""


def install_command(module: str) -> str | None:
    """Return the command that installs a boosted-tree library; None if it is installed or not one that we support."""
    if module not in _EXTRAS or importlib.util.find_spec(module):
        return None
    return f"pip install 'accelsweep[{_EXTRAS[module]}]'"


def cuda_remedy(module: str) -> str | None:
    """Return how to get a CUDA build of `module`, if the installed build certainly lacks CUDA."""
    if module != "xgboost" or not _is_installed("xgboost-cpu") or _is_installed("xgboost"):
        return None
    return "the wheel xgboost-cpu lacks CUDA support: pip uninstall xgboost-cpu, then pip install xgboost"


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


def cannot_boost(config: SettingConfig, site: Site) -> str | None:
    """Return why a setting cannot be run, or None. Looks for the library only if this machine runs the measurements."""
    if config.precision != "32-true":
        return f"precision={config.precision}: task=boosting leaves number formats to the library; do not set it"
    library = LIBRARIES.get(config.model_target)
    if library is None:
        return None
    if config.accelerator not in library.accelerators:
        return f"accelerator={config.accelerator}: {library.name} supports only {' and '.join(library.accelerators)}"
    if config.world_size > 1 and not library.shares:
        return f"{library.name} trains in one process here, not in {config.world_size}: use threads"
    if not site.probe:
        return None
    if remedy := install_command(library.module):
        return f"task=boosting needs {library.name}: {remedy}"
    no_cuda = cuda_remedy(library.module) if config.accelerator == "cuda" else None
    return None if no_cuda is None else f"accelerator=cuda: {no_cuda}"


_TREES = "accelsweep.features.boosting."


def check(config: SettingConfig, file_of: FileOf) -> None:
    """Raise InputError if model and task do not match, or if the quality metric is not AUC."""
    target, metric = config.model_target, config.measure.quality_metric
    if config.task != "boosting":
        if target.startswith(_TREES):
            raise InputError(f"{target} trains trees, which has no training steps: set task=boosting too")
        return
    if target.startswith("accelsweep.") and not target.startswith(_TREES):
        raise InputError(
            f"task=boosting trains trees, but {target} is a network or a kernel: use model=xgboost, model=lightgbm or "
            "model=hist_gradient_boosting"
        )
    if metric != "AUC" or config.measure.better != "max":
        raise InputError(
            f"task=boosting measures the area under the curve of held-out rows, but measure.quality_metric={metric}"
            f" is a different metric: use measure=boosting; look in {file_of('measure.quality_metric')}"
        )


def version_of(config: SettingConfig) -> str | None:
    """Return the module whose version determines the speed; None for a user-defined class."""
    library = LIBRARIES.get(config.model_target)
    return None if library is None else library.module
