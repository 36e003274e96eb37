"""Forked and spawned ranks get the same process group, environment and streams."""

from __future__ import annotations

import re
import threading

import pytest
from tiny_executor import TinyBlock

from accelsweep.results import Outcome
from accelsweep.worker.forking import UnsafeFork, prepare_to_fork


@pytest.mark.parametrize("launcher", ["fork", "spawn"])
def test_ranks_run_in_one_process_group_without_a_terminal(tiny_block: TinyBlock, launcher: str) -> None:
    tiny_block.plan("show_place", devices=2, config={"launcher": launcher})
    code, output = tiny_block.run()
    assert code == 0, output
    assert f"({launcher}, 2 ranks)" in output
    log = tiny_block.log()
    for rank in (0, 1):
        assert (
            f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 NODE_RANK=0 MASTER_ADDR=127.0.0.1 CUDA_VISIBLE_DEVICES=\n"
            in log
        )
    assert len(set(re.findall(r"group=(\d+)", log))) == 1
    assert log.count("oom_score_adj=1000") == 2
    assert log.count("stdin=/dev/null port=True") == 2


def test_a_setting_with_environment_variables_is_spawned(tiny_block: TinyBlock) -> None:
    env = {"MASTER_ADDR": "localhost", "COUNT": 3, "MIRROR": "s3://me:hunter2@one"}
    tiny_block.plan("show_place", config={"env": env})
    _, output = tiny_block.run()
    assert "(spawn, 1 ranks)" in output
    assert "MASTER_ADDR=localhost" in tiny_block.log()
    record = tiny_block.record()
    assert record.outcome is Outcome.measured
    assert record.config.raw["env"]["MIRROR"] == "s3://***@one"


def test_a_thread_makes_forking_unsafe() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        with pytest.raises(UnsafeFork, match="left threads behind"):
            prepare_to_fork(lambda: None)
    finally:
        gate.set()
        thread.join()
