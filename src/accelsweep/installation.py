"""Packages that accelsweep can do without, each an extra of its own."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

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


# The folder of the parts that are not Python: `conf/`, the `Snakefile`, `workflows/` and `constraints.txt`.

_PACKAGE = Path(__file__).resolve().parent


def shipped_root() -> Path:
    """Return the folder that holds `conf/`, `Snakefile` and `workflows/`. Raises FileNotFoundError if it is missing."""
    for candidate in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (candidate / "Snakefile").is_file() and (candidate / "conf").is_dir():
            return candidate
    raise FileNotFoundError(f"accelsweep's conf/ and Snakefile are missing beside {_PACKAGE}; install it again")


def config_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of config files: the user's `conf/` in `home` if there is one, then the shipped one."""
    own, shipped = home / "conf", shipped_root() / "conf"
    return (own, shipped) if own.is_dir() and own.resolve() != shipped.resolve() else (shipped,)


# The version of this package, where every room can read it without importing the public names above all rooms.

__version__ = "0.1.0"
