"""A server that forks on request serves those alike, and its forks end with their clients."""

from __future__ import annotations

import os
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from polling import PATIENCE_SECONDS

from accelsweep import ipc
from accelsweep.fork_client import process_state
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


@pytest.mark.parametrize("foreign", [False, True])
def test_the_interpreter_of_a_project_may_differ_and_set_variables_but_not_contradict(foreign: bool) -> None:
    server, theirs = ForkServer({}, foreign=foreign), process_state()
    ours = {**theirs, "interpreter": "another", "variable PYTHONPATH": "/worker", "variable OF_A_WRAPPER": "yes"}
    allowed = set() if not foreign else {"interpreter", "variable PYTHONPATH", "variable OF_A_WRAPPER"}
    unlike = {"interpreter", "variable OF_A_WRAPPER", "variable OMP_NUM_THREADS", "variable PYTHONPATH"}
    assert {*server._unlike(ours, {**theirs, "variable OMP_NUM_THREADS": "7"})} == unlike - allowed


def test_a_version_that_has_been_installed_since_the_import_is_refused() -> None:
    installed = {"torch": "2.4.0"}
    server = ForkServer({}, lambda: installed)
    ours = {**process_state(), **installed}
    assert server._unlike(ours, process_state()) == []
    installed["torch"] = "2.5.0"
    assert server._unlike(ours, process_state()) == ["torch"]
