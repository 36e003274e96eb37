"""What is installed: the version of accelsweep, the files shipped with it, and optional packages."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

__version__ = "0.1.0"

_PACKAGE = Path(__file__).resolve().parent

BOOSTING_EXTRAS = {"xgboost": "boosting", "lightgbm": "lightgbm"}
"""Modules of boosted trees, and the extra that installs each."""

EXECUTOR_EXTRAS = {"cluster-generic": "grid-engine"}
"""Snakemake's executor plugins that an extra of ours installs."""


def shipped_root() -> Path:
    """Return the folder with `conf/`, `Snakefile`, `workflows/` and `constraints.txt`. Raises FileNotFoundError."""
    for candidate in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (candidate / "Snakefile").is_file() and (candidate / "conf").is_dir():
            return candidate
    raise FileNotFoundError(f"accelsweep's conf/ and Snakefile are missing beside {_PACKAGE}; install it again")


def config_folders(home: Path) -> tuple[Path, ...]:
    """Return the folders of config files: the user's `conf/` in `home` if there is one, then the shipped one."""
    user, shipped = home / "conf", shipped_root() / "conf"
    return (user, shipped) if user.is_dir() and user.resolve() != shipped.resolve() else (shipped,)


def loadgen_install_command() -> str | None:
    """Return the command that installs MLPerf's load generator; None where it is installed."""
    return None if importlib.util.find_spec("mlperf_loadgen") else "pip install accelsweep[serving]"


def executor_plugin_install_command(executor: str) -> str | None:
    """Return the command that installs Snakemake's plugin for an `executor`; None where Snakemake has it."""
    if executor == "local" or importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}"):
        return None
    extra = EXECUTOR_EXTRAS.get(executor)
    return f"pip install 'accelsweep[{extra}]'" if extra else f"pip install snakemake-executor-plugin-{executor}"


def boosting_install_command(module: str) -> str | None:
    """Return the command that installs a library of boosted trees; None where it is installed or not one of ours."""
    if module not in BOOSTING_EXTRAS or importlib.util.find_spec(module):
        return None
    return f"pip install 'accelsweep[{BOOSTING_EXTRAS[module]}]'"


def cuda_boosting_remedy(module: str) -> str | None:
    """Return how to get a CUDA build of `module`, where the installed one certainly has none."""
    if module != "xgboost" or not _is_installed("xgboost-cpu") or _is_installed("xgboost"):
        return None
    return "XGBoost's wheel xgboost-cpu has no CUDA: pip uninstall xgboost-cpu, then pip install xgboost"


def _is_installed(distribution: str) -> bool:
    try:
        metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
