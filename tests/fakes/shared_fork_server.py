"""One fork server for all commands that a process of the tests starts: torch is imported once, not once a sweep."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from accelsweep.drive.fork_server import JOB_VARIABLES, start
from accelsweep.supervise.fork_server.messages import VARIABLE

_ALIKE = {"PYTHONUNBUFFERED": "1", "PYTEST_CURRENT_TEST": ""}
"""What the server and all who ask it have in common."""


@cache
def _server() -> str:
    folder = Path(tempfile.mkdtemp(prefix="accelsweep-tests-"))
    name, server = start(folder, folder / "log", {**JOB_VARIABLES, **_ALIKE})
    atexit.register(server.finish)
    return name


def beside_the_server() -> dict[str, str]:
    """Return the variables for a command whose blocks are forked from the server."""
    return {**_ALIKE, VARIABLE: _server()}
