"""Forked and spawned ranks get the same process group, environment and streams."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest
from polling import until
from tiny_executor import TinyBlock
from tiny_sweep import config_with

from accelsweep.driver.background_processes import ForkServers, Interpreter
from accelsweep.executor.launch import Launcher, RankForker
from accelsweep.fork_client import has_project_server
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


@pytest.mark.real
def test_a_process_that_forks_a_projects_ranks_comes_from_the_commands_server_and_is_replaced_if_it_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    with ForkServers(tmp_path) as servers:
        servers.start([Interpreter(sys.executable), Interpreter("/absent/python")])
        assert not has_project_server("/absent/python", None)
        launcher = Launcher()

        def forker() -> RankForker:
            assert launcher.project_method(config_with(), sys.executable, {}, said.append) == "fork"
            return launcher.forkers[sys.executable, None]

        first = forker()
        assert forker() is first
        assert first._process is not None
        first._process.kill()
        until(first.has_died)
        second = forker()
        assert (second is first, second.has_own_server, said) == (False, False, [])
        launcher.close()
        monkeypatch.setenv("OMP_NUM_THREADS", "7")
        assert not has_project_server(sys.executable, None), "its fork would have another number of threads"


def test_an_interpreter_that_cannot_fork_gets_fresh_processes_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said, config = list[str](), config_with()
    assert Launcher().project_method(config, "/bin/false", {}, said.append) == "spawn"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert Launcher().project_method(config, "/bin/false", {}, said.append) == "spawn"
    ending = "; every run gets a fresh interpreter"
    assert said == [
        f"forking is not safe with /bin/false (its fork server ended with exit code 1){ending}",
        f"forking is not safe with /bin/false (a process with torch loaded cannot be forked safely on darwin){ending}",
    ]
