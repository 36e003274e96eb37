"""Packages that accelsweep can do without, each an extra of its own."""

from __future__ import annotations

import importlib.util
from importlib import metadata

EXTRA_OF = {"xgboost": "boosting", "lightgbm": "lightgbm"}
"""Libraries of boosted trees by their modules, and the extra that brings each."""

EXECUTOR_EXTRAS = {"cluster-generic": "grid-engine"}
"""Executor plugins of Snakemake that an extra of ours brings."""


def loadgen_missing() -> str | None:
    """Return the command that installs MLPerf's load generator; None where it is installed."""
    return None if importlib.util.find_spec("mlperf_loadgen") else "pip install accelsweep[serving]"


def executor_missing(executor: str) -> str | None:
    """Return the command that installs Snakemake's plugin for an `executor`; None where Snakemake has it."""
    if executor == "local" or importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}"):
        return None
    ours = EXECUTOR_EXTRAS.get(executor)
    return f"pip install 'accelsweep[{ours}]'" if ours else f"pip install snakemake-executor-plugin-{executor}"


def trees_missing(module: str) -> str | None:
    """Return the command that installs a library of boosted trees; None where it is installed, or no extra of ours."""
    if module not in EXTRA_OF or importlib.util.find_spec(module):
        return None
    return f"pip install 'accelsweep[{EXTRA_OF[module]}]'"


def trees_without_cuda(module: str) -> str | None:
    """Return how to get a build of `module` with CUDA, where the one that is installed has none for certain."""
    if module != "xgboost" or not _installed("xgboost-cpu") or _installed("xgboost"):
        return None
    return "XGBoost's wheel xgboost-cpu has no CUDA: pip uninstall xgboost-cpu, then pip install xgboost"


def _installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
