"""The wheels that a machine with a torch image lacks; `pack.py` packs them for it.

A machine that is lent for minutes has torch and its usual companions (`present.txt`), and often no network. The further
needs of accelsweep are found by walking `Requires-Dist` from `pyproject.toml` through the packages installed here, at
their versions. MLflow and the packages that only MLflow needs are left out, because the acceptance publishes nothing.
The wheels are for another Python than this one, so pip resolves nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LEFT_OUT = frozenset({"mlflow", "snakemake-executor-plugin-slurm"})
"""No run of the acceptance publishes or submits."""

PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5))


def roots() -> list[Requirement]:
    """Return the requirements of accelsweep itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [Requirement(line) for line in project["dependencies"]]


def missing(present: frozenset[str], python: str) -> set[str]:
    """Return the names of the packages that accelsweep needs on a machine that has those in `present`."""
    there = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    todo, found = roots(), set[str]()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in found | present | LEFT_OUT or not _applies(requirement, there):
            continue
        found.add(name)
        todo.extend(_needs(name, requirement.extras))
    return found


def _applies(requirement: Requirement, there: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(there)


def _needs(name: str, extras: set[str]) -> Iterator[Requirement]:
    for line in metadata.requires(name) or []:
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield Requirement(line.partition(";")[0])


def fetch(name: str, folder: Path, python: str) -> None:
    """Put the wheel of `name` into `folder`, at this environment's version; build it where only a source exists."""
    wanted = f"{name}=={metadata.version(name)}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    ready = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    ready += [f"--platform={platform}" for platform in PLATFORMS]
    code = subprocess.run([*pip, "download", "--no-deps", *ready, "--dest", folder, wanted], check=False).returncode
    if code:
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, wanted], check=True)


def fetch_missing(folder: Path, python: str, present: Path) -> list[str]:
    """Put every missing wheel into `folder` and return the packages' names; `present` lists those there, one a line."""
    there = frozenset(map(canonicalize_name, present.read_text("utf-8").split()))
    names = sorted(missing(there, python))
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        fetch(name, folder, python)
    return names
