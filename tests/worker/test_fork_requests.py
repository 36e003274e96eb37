"""A server that forks on request serves only clients in the same environment, and its forks end with them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from polling import PATIENCE_SECONDS

from accelsweep import ipc
from accelsweep.fork_client import project_server
from accelsweep.ipc import PROJECT_SERVERS_VARIABLE
from accelsweep.worker.fork_requests import ForkServer


@pytest.mark.real
def test_a_fork_ends_with_its_client_even_if_nohup_ignores_the_signal(
    tmp_path: Path,
) -> None:
    module = "accelsweep.worker.project_config"
    server = ForkServer({module: partial(time.sleep, PATIENCE_SECONDS)})
    request = {"module": module, "arguments": [], "cwd": str(tmp_path), "path": None, "environment": dict(os.environ)}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            ours.close()
            server._run_module(theirs, [os.open(os.devnull, os.O_RDWR) for _ in range(3)], request)
        theirs.close()
        assert ipc.receive(ours) == {"pid": child}
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGHUP


@pytest.mark.real
def test_a_fork_whose_client_has_gone_ends_without_a_traceback(tmp_path: Path) -> None:
    request = {"module": "m", "arguments": [], "cwd": str(tmp_path), "path": None, "environment": dict(os.environ)}
    ours, theirs = socket.socketpair()

    def end_after_the_client() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as if it had been handled
        assert theirs.recv(1) == b"", "the client has gone"

    server, log = ForkServer({"m": end_after_the_client}), tmp_path / "log"
    with ours, theirs:
        child = os.fork()
        if child == 0:
            ours.close()
            sys.stderr = sys.__stderr__
            server._run_module(theirs, [os.open(log, os.O_RDWR | os.O_CREAT) for _ in range(3)], request)
        assert ipc.receive(ours) == {"pid": child}
    os.waitpid(child, 0)
    assert log.read_text() == ""


def test_a_project_server_is_known_only_to_processes_like_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert project_server("python", None) is None
    monkeypatch.setenv(PROJECT_SERVERS_VARIABLE, "command")
    name = project_server("python", None)
    monkeypatch.setenv("ACCELSWEEP_OF_A_JOB", "1")
    assert project_server("python", None) == name
    assert len({name, project_server("python", "lightning"), project_server("another", None)}) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert project_server("python", None) != name


def test_a_fork_keeps_variables_of_a_wrapper_around_the_projects_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/of/a/wrapper")
    kept = ForkServer({}, foreign=True)._kept_variables()
    assert kept["LD_LIBRARY_PATH"] == "/of/a/wrapper"
    assert kept.keys().isdisjoint({"PYTHONPATH", "TMPDIR", PROJECT_SERVERS_VARIABLE})
    assert ForkServer({})._kept_variables() == {}


@pytest.mark.heavy  # it imports torch
def test_a_script_without_a_trainer_is_forked_from_a_process_without_lightning() -> None:
    check = (
        "import sys; from accelsweep.worker.main import preload; preload(with_lightning=False); "
        "print('torch' in sys.modules, 'accelsweep.worker.loops.script' in sys.modules, 'lightning' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "True True False\n"
