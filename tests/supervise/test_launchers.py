"""How ranks come to life: forked or spawned, they find the same place, group and environment."""

from __future__ import annotations

import re
import threading

import pytest
from tiny_supervisor import Supervised, plan_sweep

from accelsweep.executor.launch import UnsafeFork, prepare_to_fork
from accelsweep.records.run_record import Outcome


@pytest.mark.parametrize("launcher", ["fork", "spawn"])
def test_ranks_find_their_place_in_one_group_without_a_terminal(supervised: Supervised, launcher: str) -> None:
    cell = {"act": "show_place", "devices": 2, "launcher": launcher}
    supervised.folder, supervised.block = plan_sweep(supervised.home, [cell])
    code, output = supervised.run()
    assert code == 0, output
    assert f"({launcher}, 2 ranks)" in output
    log = supervised.log()
    for rank in (0, 1):
        assert (
            f"RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 NODE_RANK=0 MASTER_ADDR=127.0.0.1 CUDA_VISIBLE_DEVICES=\n"
            in log
        )
    assert len(set(re.findall(r"group=(\d+)", log))) == 1
    assert log.count("oom_score_adj=1000") == 2
    assert log.count("stdin=/dev/null port=True") == 2


def test_a_cell_that_sets_the_environment_is_spawned(supervised: Supervised) -> None:
    cell = {"act": "show_place", "env": {"MASTER_ADDR": "localhost", "COUNT": 3, "MIRROR": "s3://me:hunter2@one"}}
    supervised.folder, supervised.block = plan_sweep(supervised.home, [cell])
    _, output = supervised.run()
    assert "(spawn, 1 ranks)" in output
    assert "MASTER_ADDR=localhost" in supervised.log()
    record = supervised.record()
    assert record.outcome is Outcome.measured
    assert record.config.raw["env"]["MIRROR"] == "s3://***@one"


def test_a_thread_that_survives_a_fork_makes_forking_unsafe() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        with pytest.raises(UnsafeFork, match="left threads behind"):
            prepare_to_fork(lambda: None)
    finally:
        gate.set()
        thread.join()
