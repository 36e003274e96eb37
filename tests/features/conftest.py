"""Fixtures of the features' tests: a working directory to plan in, a rank to run, and the findings of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from accelsweep.devices import kinds
from accelsweep.devices.device_kind import Device
from accelsweep.planning.plan import Plan, make_plan
from accelsweep.records.findings import Findings


def declare_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = Device(accelerator="cpu", model="Test CPU", count=2, memory_bytes=8 * 2**30)
    monkeypatch.setattr(kinds, "inventory", lambda: (cpu,))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory on a machine with two CPU cores and no GPU."""
    declare_two_cores(monkeypatch)
    return tmp_path


@pytest.fixture
def own_conf(home: Path) -> Callable[[Mapping[str, str]], None]:
    """Write config files of the user below the working directory."""

    def write(files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = home / "conf" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Plan]]:
    """A function that plans overrides of the shipped config on two cores; each plan is made once and shared."""
    home = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        declare_two_cores(patch)
        yield cache(lambda *overrides: make_plan(home, overrides))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Run a single rank in this process and return its result."""
    from one_rank import make_spec, place_of_a_rank

    from accelsweep.records.run_files import read_rank_result
    from accelsweep.results import RankResult
    from accelsweep.worker.main import run_rank

    def run_one(**changes: Any) -> RankResult:
        spec = make_spec(tmp_path, ceilings=tmp_path / "ceilings.json", **changes)
        run_rank(spec)
        return read_rank_result(spec.rank_result(0))

    with place_of_a_rank(tmp_path):
        yield run_one


@pytest.fixture
def findings() -> Findings:
    """The findings of a simulated sweep of two settings, without any section."""
    from simulated_sweep import make_manifest, make_run

    from accelsweep.analysis.analyse_sweep import analyse

    settings = [{"batch_size": 8}, {"batch_size": 64}]
    runs = [make_run(axes, block, 10.0 * axes["batch_size"] + block) for block in range(3) for axes in settings]
    return analyse(runs, make_manifest(settings, 3)).model_copy(update={"sections": {}})
