"""Fixtures for planning: a working directory on a machine with two CPU cores, and the user's own config files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from accelsweep.devices import kinds
from accelsweep.devices.device_kind import Device
from accelsweep.planning.plan import Plan, make_plan


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below `folder` and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def declare_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have two CPU cores and no GPU."""
    cpu = Device(accelerator="cpu", model="Test CPU", count=2, memory_bytes=8 * 2**30)
    monkeypatch.setattr(kinds, "inventory", lambda *_: (cpu,))


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two CPU cores and no GPU, whatever the tests run on."""
    declare_two_cores(monkeypatch)


@pytest.fixture
def home(tmp_path: Path, two_cores: None) -> Path:
    """A working directory on that machine, which sees the shipped `conf/`."""
    return tmp_path


@pytest.fixture
def own_conf(home: Path) -> Callable[[Mapping[str, str]], Path]:
    """Write the user's own config files below the working directory."""
    return lambda files: write_files(home / "conf", files)


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Plan]]:
    """A function that plans overrides of the shipped config on two cores; each plan is made once and shared."""
    home = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        declare_two_cores(patch)
        yield cache(lambda *overrides: make_plan(home, overrides))
