"""`requirements.lock`: the pinned set again, each file with its hash."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOR_CUDA = re.compile(r"nvidia-|cuda-|triton$|setuptools$")
"""What PyPI's torch for Linux brings along. The build for the CPU, which the tests run on, has none of it."""

ELSEWHERE = {"xgboost"}
"""Pinned for macOS alone. The lock is for Linux."""


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if re.match(r"\w", line)]
    found = [Requirement(line.removesuffix("\\")) for line in lines]
    return {canonicalize_name(one.name): str(one.specifier) for one in found}


def test_what_is_locked_is_what_is_pinned() -> None:
    locked, pinned = pins("requirements.lock"), pins("constraints.txt")
    wanted = {name: pin for name, pin in pinned.items() if name not in ELSEWHERE}
    assert {name: pin for name, pin in locked.items() if name in pinned} == wanted


def test_beyond_the_pins_only_the_parts_of_cuda_are_locked() -> None:
    more = pins("requirements.lock").keys() - pins("constraints.txt").keys()
    assert [name for name in more if not FOR_CUDA.match(name)] == []


def test_every_locked_package_has_a_hash() -> None:
    packages = re.split(r"\n(?=\w)", (ROOT / "requirements.lock").read_text())[1:]
    assert len(packages) == len(pins("requirements.lock"))
    assert [package for package in packages if "--hash=sha256:" not in package] == []


@pytest.mark.parametrize("extra", ["", "dev"])
def test_what_the_project_asks_for_is_locked(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = map(Requirement, project["optional-dependencies"][extra] if extra else project["dependencies"])
    here = [one for one in asked if one.name != "accelsweep" and (one.marker is None or one.marker.evaluate())]
    locked = pins("requirements.lock")
    assert [one.name for one in here if canonicalize_name(one.name) not in locked] == []


def test_no_extra_takes_another_in_under_a_condition() -> None:
    """Its packages would be asked for without it: hatchling writes them into the metadata as they stand there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = [Requirement(each) for extra in extras.values() for each in extra]
    assert [str(one) for one in asked if one.name == "accelsweep" and one.marker] == []
