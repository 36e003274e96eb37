"""Fetch the wheels that a machine with a torch image lacks: `python benchmarks/gpu/wheels.py FOLDER [--python 3.12]`.

A machine that is lent for minutes has torch and what usually stands beside it (`present.txt`), and often no network.
What accelsweep needs beyond that is found by walking `Requires-Dist` from `pyproject.toml` through the packages that
are installed here, at the versions of `constraints.txt`. MLflow stays out, with everything that only it needs: the
acceptance publishes nothing. The wheels are for another Python than this one, so nothing is resolved by pip.
"""

from __future__ import annotations

import argparse
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
"""No run of the acceptance publishes or submits; together these are two thirds of the weight."""

PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5))


def roots() -> list[Requirement]:
    """Return what accelsweep itself requires."""
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
    """Put the wheel of `name` into `folder`, at this environment's version; build it where there is only a source."""
    wanted = f"{name}=={metadata.version(name)}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    ready = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    ready += [f"--platform={platform}" for platform in PLATFORMS]
    code = subprocess.run([*pip, "download", "--no-deps", *ready, "--dest", folder, wanted], check=False).returncode
    if code:
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, wanted], check=True)


def main() -> int:
    """Fetch what is missing and print what it weighs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the version on the other machine")
    parser.add_argument("--present", type=Path, default=HERE / "present.txt", help="what that machine has, one a line")
    options = parser.parse_args()
    lines = options.present.read_text("utf-8").split()
    names = sorted(missing(frozenset(map(canonicalize_name, lines)), options.python))
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        fetch(name, options.folder, options.python)
    weight = sum(wheel.stat().st_size for wheel in options.folder.glob("*.whl"))
    print(f"{len(names)} wheels, {weight / 2**20:.1f} MiB: {' '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
