"""One fork server for all commands that tests start, in whatever worker: torch is imported once, not once a sweep."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from accelsweep import fork_client
from accelsweep.driver.background_processes import start_fork_server
from accelsweep.fork_client import process_state
from accelsweep.ipc import FORK_SERVER_VARIABLE, address
from accelsweep.plain_json import sha256_text
from accelsweep.temporary_folders import remove_abandoned_folders, temporary_folder

CANARY = "canary7f3a91"

SHARED_VARIABLE = "TESTS_SHARED_FOLDER"
"""Names the folder that all workers of a suite share; the process that made it removes it at its end."""

_ALIKE = {
    "PYTHONUNBUFFERED": "1",
    "PYTEST_CURRENT_TEST": "",
    "PYTEST_XDIST_WORKER": "",
    "AWS_SECRET_ACCESS_KEY": CANARY,
    "MY_SETTING": CANARY,
    "KMP_DUPLICATE_LIB_OK": "True",
    "KMP_INIT_AT_FORK": "FALSE",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TORCHINDUCTOR_CACHE_DIR": "compiled",
    "TRITON_CACHE_DIR": "compiled",
    "_MLFLOW_TELEMETRY_SESSION_ID": "tests",
}
"""What the server and all who ask it have in common, with secrets that nothing may write down.

scikit-learn, XGBoost, torch and MLflow set the last six in the workers that import them, each to a value of its own.
"""


@contextlib.contextmanager
def shared_folder() -> Iterator[None]:
    """Make the folder for this suite, and remove those of suites that were killed."""
    remove_abandoned_folders(("suite",))
    with temporary_folder("suite") as made, pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED_VARIABLE, str(made))
        yield


def _folder() -> Path:
    """The folder that all workers of these tests know."""
    return Path(os.environ[SHARED_VARIABLE])


def _alike() -> dict[str, str]:
    compiled = str(_folder() / "compiled")
    return {name: compiled if text == "compiled" else text for name, text in _ALIKE.items()}


def _server(alike: str) -> str:
    """Return the name of the server for this process state. It dies with the worker that started it."""
    known = _folder() / f"server-{alike}"
    with FileLock(f"{known}.lock"):
        if known.exists() and _is_there(known.read_text()):
            return known.read_text()
        name, server = start_fork_server(_folder(), known.with_suffix(".log"), _alike())
        known.write_text(name)
        atexit.register(server.terminate)
        return name


def _is_there(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as server:
        return server.connect_ex(address(name)) == 0


def beside_the_server() -> dict[str, str]:
    """Return the variables for a command whose blocks are forked from the server.

    Modules that a test imports in this process may set variables. What is started after that has another server.
    """
    names = {f"variable {name}" for name in _ALIKE}
    alike = sorted((name, value) for name, value in process_state().items() if name not in names)
    return {**_alike(), FORK_SERVER_VARIABLE: _server(sha256_text(repr(alike))[:16])}


def plan_beside_the_server(patch: pytest.MonkeyPatch, *own_variables: str) -> None:
    """Let plans made in this process compose the configs of projects in forks of the server.

    A test that sets a variable gets a fresh interpreter, unless `own_variables` says that no library reads it.
    """
    alike = beside_the_server()
    patch.setenv(FORK_SERVER_VARIABLE, alike.pop(FORK_SERVER_VARIABLE))
    state = fork_client.process_state
    same = {f"variable {name}": value for name, value in alike.items()}
    own = {f"variable {name}" for name in own_variables}

    def alike_state() -> fork_client.ProcessState:
        return {name: value for name, value in state().items() if name not in own} | same

    patch.setattr(fork_client, "process_state", alike_state)
