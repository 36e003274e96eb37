"""One cell in the foreground: in this process, without a trace in the sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tiny_supervisor import HERE, Supervised, plan_sweep, result

from accelsweep.errors import InputError
from accelsweep.executor.launch import Launchers
from accelsweep.json_documents import FOLDER_VARIABLE
from accelsweep.records.plan import Manifest
from accelsweep.supervise.debug import debug_cell
from accelsweep.worker.run_spec import RunSpec


@pytest.fixture
def planned(supervised: Supervised, monkeypatch: pytest.MonkeyPatch) -> Supervised:
    monkeypatch.setenv(FOLDER_VARIABLE, str(supervised.leases))
    return supervised.plan("measured", devices=2)


def test_rank_0_runs_in_this_process_and_leaves_nothing_behind(planned: Supervised) -> None:
    seen: list[tuple[int, str, RunSpec]] = []

    def body(spec: RunSpec) -> None:
        seen.append((os.getpid(), os.environ["WORLD_SIZE"], spec))
        result(0).write(spec.rank_result(0))

    before = dict(os.environ)
    (cell,) = (cell.name for cell in Manifest.read(planned.folder.manifest).cells)
    found = debug_cell(planned.folder, cell, Launchers(entry=body, spawn_command=(sys.executable, str(HERE), "--rank")))
    ((process, world_size, spec),) = seen
    assert (process, world_size) == (os.getpid(), "2")
    assert found.metrics["samples_per_second"].value == 100.0
    assert not Path(spec.attempt_folder).exists()
    assert not (planned.folder.root / "runs").exists()
    assert dict(os.environ) == before


def test_a_cell_that_no_block_holds_is_wrong_input(planned: Supervised) -> None:
    with pytest.raises(InputError, match="holds setting 'nothing'"):
        debug_cell(planned.folder, "nothing")


def test_a_cell_of_several_nodes_cannot_be_debugged_on_one(supervised: Supervised) -> None:
    supervised.folder, supervised.block = plan_sweep(supervised.home, [{"act": "measured", "num_nodes": 2}])
    (cell,) = (cell.name for cell in Manifest.read(supervised.folder.manifest).cells)
    with pytest.raises(InputError, match="takes 2 nodes"):
        debug_cell(supervised.folder, cell)
