"""One fork server for all commands that a process of the tests starts: torch is imported once, not once a sweep."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from accelsweep.drive.fork_server import JOB_VARIABLES, start
from accelsweep.supervise.fork_server.messages import VARIABLE
from accelsweep.supervise.fork_server.surroundings import surroundings

_ALIKE = {"PYTHONUNBUFFERED": "1", "PYTEST_CURRENT_TEST": ""}
"""What the server and all who ask it have in common."""


@cache
def _server(_alike: tuple[tuple[str, str], ...]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="accelsweep-tests-"))
    name, server = start(folder, folder / "log", {**JOB_VARIABLES, **_ALIKE})
    atexit.register(server.finish)
    return name


def beside_the_server() -> dict[str, str]:
    """Return the variables for a command whose blocks are forked from the server.

    Modules that a test imports in this process may set variables. What is started after that has another server.
    """
    alike = {name: value for name, value in surroundings().items() if not name.endswith("PYTEST_CURRENT_TEST")}
    return {**_ALIKE, VARIABLE: _server(tuple(sorted(alike.items())))}
