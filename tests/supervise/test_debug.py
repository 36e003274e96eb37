"""One cell in the foreground: in this process, without a trace in the sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tiny_executor import HERE, TinyBlock, plan_sweep, result

from accelsweep.errors import InputError
from accelsweep.executor.launch import Launcher
from accelsweep.features.debug.command import debug_cell
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.records.plan import Manifest
from accelsweep.worker.run_spec import RunSpec


@pytest.fixture
def planned(tiny_block: TinyBlock, monkeypatch: pytest.MonkeyPatch) -> TinyBlock:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tiny_block.leases))
    return tiny_block.plan("measured", devices=2)


def test_rank_0_runs_in_this_process_and_leaves_nothing_behind(planned: TinyBlock) -> None:
    seen: list[tuple[int, str, RunSpec]] = []

    def body(spec: RunSpec) -> None:
        seen.append((os.getpid(), os.environ["WORLD_SIZE"], spec))
        result(0).write(spec.rank_result(0))

    before = dict(os.environ)
    (cell,) = (cell.name for cell in Manifest.read(planned.folder.manifest).cells)
    found = debug_cell(planned.folder, cell, Launcher(entry=body, spawn_command=(sys.executable, str(HERE), "--rank")))
    ((process, world_size, spec),) = seen
    assert (process, world_size) == (os.getpid(), "2")
    assert found.metrics["samples_per_second"].value == 100.0
    assert not Path(spec.attempt_folder).exists()
    assert not (planned.folder.root / "runs").exists()
    assert dict(os.environ) == before


def test_a_cell_that_no_block_holds_is_wrong_input(planned: TinyBlock) -> None:
    with pytest.raises(InputError, match="holds setting 'nothing'"):
        debug_cell(planned.folder, "nothing")


def test_a_cell_of_several_nodes_cannot_be_debugged_on_one(tiny_block: TinyBlock) -> None:
    tiny_block.folder, tiny_block.block_file = plan_sweep(tiny_block.home, [{"act": "measured", "num_nodes": 2}])
    (cell,) = (cell.name for cell in Manifest.read(tiny_block.folder.manifest).cells)
    with pytest.raises(InputError, match="takes 2 nodes"):
        debug_cell(tiny_block.folder, cell)
