"""The fork server of local sweeps: torch and Lightning are imported once, not once in each block."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.drive.children.processes import Child
from accelsweep.supervise.processes.messages import FORK_SERVER_VARIABLE, address

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan

_LIBRARIES = ("OMP_NUM", "GOTO_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")
JOB_VARIABLES = {f"{library}_THREADS": "1" for library in _LIBRARIES}
"""The variables that Snakemake gives to a job of one thread (snakemake/shell.py), as a block is one."""


@contextlib.contextmanager
def fork_server(home: Path, log: Path, plans: Iterable[Plan]) -> Iterator[None]:
    """Run a fork server for the jobs that are started in the with-block, if runs of a plan are forked on this machine.

    A server that an outer with-block or process runs is used instead of another one.
    """
    if sys.platform != "linux" or FORK_SERVER_VARIABLE in os.environ or not any(map(_forks_here, plans)):
        yield
        return
    name, server = start(home, log, JOB_VARIABLES)
    os.environ[FORK_SERVER_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[FORK_SERVER_VARIABLE]
        server.finish()


def _forks_here(plan: Plan) -> bool:
    forked = any(cell.config.launcher == "fork" for cell in plan.cells)
    return forked and plan.manifest.site.scheduler == "local"


def start(home: Path, log: Path, variables: Mapping[str, str]) -> tuple[str, Child]:
    """Start a fork server in `home` with `variables` in its environment; return the name of its socket and its process.

    It can be asked at once, and answers when it has imported torch.
    """
    name = f"accelsweep-{secrets.token_hex(16)}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(name))
        listener.listen()
        command = [sys.executable, "-P", "-m", "accelsweep.supervise.fork_server", str(listener.fileno())]
        descriptors = (listener.fileno(),)
        return name, Child.start(command, cwd=home, log=log, variables=variables, descriptors=descriptors)
