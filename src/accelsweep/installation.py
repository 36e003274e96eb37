"""The installed version of accelsweep, the files shipped with it, and optional packages."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from importlib import metadata
from pathlib import Path

__version__ = "0.2.0.dev0"

_PACKAGE = Path(__file__).resolve().parent


def shipped_root() -> Path:
    """Return the folder with `conf/`, `Snakefile`, `workflows/` and `constraints.txt`. Raises FileNotFoundError."""
    for candidate in (_PACKAGE / "shipped", _PACKAGE.parents[1]):
        if (candidate / "Snakefile").is_file() and (candidate / "conf").is_dir():
            return candidate
    raise FileNotFoundError(f"accelsweep's conf/ and Snakefile are missing next to {_PACKAGE}; reinstall accelsweep")


def worker_folder(parent: Path) -> Path:
    """Return a folder that contains accelsweep and no other package, for another environment's import path.

    It is created below `parent` if accelsweep is installed among other packages, and counts as installed as well.
    """
    if not in_installed(_PACKAGE):
        return _PACKAGE.parent
    folder = parent / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / _PACKAGE.name
    if not link.is_symlink() or link.readlink() != _PACKAGE:
        new = folder / f".{_PACKAGE.name}-{os.getpid()}"
        new.symlink_to(_PACKAGE)
        new.replace(link)
    return folder


FOREIGN_PROLOGUE = "import sys; sys.path[:] = filter(None, sys.path); "
"""Keeps the user's files from shadowing ours in another environment; `-P` needs Python 3.11."""


def python_path(*folders: str) -> str:
    """Return a value for `PYTHONPATH`: the folders, followed by the inherited ones."""
    return os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])


def foreign_command(python: str, module: str) -> list[str]:
    """Return the command that calls a module's `main` with another environment's interpreter; arguments may follow."""
    return [python, "-c", f"{FOREIGN_PROLOGUE}from {module} import main; sys.exit(main())"]


def config_folders(home: Path) -> tuple[Path, ...]:
    """Return the config folders: the user's `conf/` in `home`, if any, followed by the built-in folder."""
    user, shipped = home / "conf", shipped_root() / "conf"
    return (user, shipped) if user.is_dir() and user.resolve() != shipped.resolve() else (shipped,)


def executor_plugin_install_command(executor: str) -> str | None:
    """Return the command that installs Snakemake's plugin for an `executor`; None if it is installed or built in."""
    if executor == "local" or importlib.util.find_spec(f"snakemake_executor_plugin_{executor.replace('-', '_')}"):
        return None
    plugin = f"snakemake-executor-plugin-{executor}"
    extra = _extra_with(plugin)
    return f"pip install 'accelsweep[{extra}]'" if extra else f"pip install {plugin}"


def _extra_with(distribution: str) -> str | None:
    """Return the accelsweep extra that installs a distribution, or None."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("accelsweep") or ():
            name, _, condition = line.partition(";")
            extra = re.search(r"extra == ['\"]([\w-]+)['\"]", condition)
            if extra and extra[1] not in ("dev", "docs") and re.split(r"[^\w.-]", name, maxsplit=1)[0] == distribution:
                return extra[1]
    return None


def in_installed(path: Path) -> bool:
    """Return whether a path is inside a folder of installed packages."""
    return not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
