"""`accelsweep debug` runs a setting in this process and leaves no trace in the sweep."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tiny_executor import HERE, TinyBlock, result

from accelsweep.errors import InputError
from accelsweep.executor.launch import Launcher
from accelsweep.features.debug.command import debug_setting
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.worker.run_spec import RunSpec


@pytest.fixture
def block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyBlock:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    return TinyBlock(tmp_path, tmp_path / "leases")


def setting_of(block: TinyBlock) -> str:
    return block.runs()[0].rpartition("-")[0]


def test_rank_0_runs_in_this_process_and_leaves_nothing_behind(block: TinyBlock) -> None:
    block.plan("measured", devices=2)
    calls: list[tuple[int, str, RunSpec]] = []

    def run_rank(spec: RunSpec) -> None:
        calls.append((os.getpid(), os.environ["WORLD_SIZE"], spec))
        result(0).write(spec.rank_result(0))

    environment = dict(os.environ)
    launcher = Launcher(entry=run_rank, spawn_command=(sys.executable, str(HERE), "--rank"))
    rank_result = debug_setting(block.folder, setting_of(block), launcher)
    ((process, world_size, spec),) = calls
    assert (process, world_size) == (os.getpid(), "2")
    assert rank_result.metrics["samples_per_second"].value == 100.0
    assert not Path(spec.attempt_folder).exists()
    assert not (block.folder.root / "runs").exists()
    assert dict(os.environ) == environment


def test_a_setting_that_no_block_holds_is_wrong_input(block: TinyBlock) -> None:
    block.plan("measured")
    with pytest.raises(InputError, match="contains setting 'nothing'"):
        debug_setting(block.folder, "nothing")


def test_a_setting_of_several_nodes_cannot_be_debugged(block: TinyBlock) -> None:
    block.plan_settings({"act": "measured", "num_nodes": 2})
    with pytest.raises(InputError, match="uses 2 nodes"):
        debug_setting(block.folder, setting_of(block))
