"""A simulated device for each test, on a clock that only the simulation advances."""

from __future__ import annotations

import gc
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated_clock import SimulatedClock

from accelsweep.records.run_files import read_rank_result
from accelsweep.testing import simulator
from accelsweep.testing.simulated_device import PROCESS_USAGES, SIMULATED_VARIABLE, Spec
from accelsweep.testing.simulated_torch import register, unavailable
from accelsweep.testing.simulator import Simulator

FOLDER = Path(__file__).parent


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect these tests only if no others are requested; otherwise `test_separate_process.py` runs them.

    torch counts devices at the first backward pass of a process, and a new type of device cannot be unregistered.
    """
    asked = [(config.invocation_params.dir / arg.partition("::")[0]).resolve() for arg in config.args]
    alone = all(path.is_relative_to(FOLDER) for path in asked)
    return None if alone != (collection_path.name == "test_separate_process.py") else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip these tests if torch cannot register a simulated device."""
    if why := unavailable():
        for item in items:
            if item.path.parent == FOLDER and item.path.name != "test_separate_process.py":
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that creates a device with this spec in this process, replacing any earlier one."""
    folder, threads = tmp_path / "device", torch.get_num_threads()
    monkeypatch.setenv(SIMULATED_VARIABLE, str(folder))
    torch.set_num_threads(1)  # so that host and device sum in the same order

    def put(clock: Any = None, **spec: Any) -> Simulator:
        Spec(**spec).write(folder)
        register()
        clock = clock or SimulatedClock()
        if clock.simulated:
            monkeypatch.setattr(time, "perf_counter", clock)
        return simulator.set_current(Simulator(Spec.read(folder), folder, clock))

    yield put
    simulator._CURRENT.clear()
    PROCESS_USAGES.pop(folder, None)
    torch.set_num_threads(threads)


@cache
def look_for_garbage_among_what_was_imported_no_more() -> None:
    """A rank collects garbage three times: torch, Lightning and what counts operations would be looked through."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def run(tmp_path: Path, simulated: Any) -> Any:
    """Run a single rank on the simulated device in this process; return its result."""
    import device_work
    from one_rank import MEASURE, TIMED_DATA, make_spec, place_of_a_rank

    from accelsweep.results import RankResult
    from accelsweep.worker.main import run_rank

    def go(measure: dict[str, Any] | None = None, data: Any = TIMED_DATA, **config: Any) -> RankResult:
        told = {"forward", "backward", "optimizer", "bytes_in", "kept", "small", "each"} & config.keys()
        model = {"_target_": "device_work.Worked", **{key: config.pop(key) for key in told}}
        rules = {**MEASURE, "probe_steps": None, **(measure or {})}
        made = make_spec(
            tmp_path, accelerator="simulated", optimizer=None, model=model, data=data, measure=rules, **config
        )
        device_work.WAITS.clear()
        device_work.COPIES.clear()
        run_rank(made)
        look_for_garbage_among_what_was_imported_no_more()
        return read_rank_result(made.rank_result(0))

    with place_of_a_rank(tmp_path):
        yield go
