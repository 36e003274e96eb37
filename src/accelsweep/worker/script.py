"""Runs a script in this process as `python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS` would."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ErrorOutput:
    """Passes on what a script writes to stderr, and remembers its last line or argparse's error."""

    def __init__(self, stderr: Any) -> None:
        """`stderr` is a file-like object."""
        self._stderr = stderr
        self._last = ""

    def write(self, text: str) -> int:
        """Pass on `text`."""
        if lines := text.strip().splitlines():
            self._last = next((line for line in lines if "error:" in line), lines[-1]).strip()
        written: int = self._stderr.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of stderr, such as `flush` or `buffer`."""
        return getattr(self._stderr, name)

    def quoted(self) -> str:
        """Return the last message, to be appended to a reason; empty if the script wrote none."""
        return f": {self._last}" if self._last else ""


def run_script(command: Sequence[str]) -> None:
    """Run `command` as the main program: a script's path, or `-m` and a module, followed by arguments.

    Like Python itself, this puts the script's folder (for a module, the working directory) first on the import path,
    which contains the working directory only if `PYTHONPATH` does.
    """
    working_folder = str(Path.cwd())
    exported = {str(Path(entry).absolute()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    ours = {"", working_folder} - exported
    sys.path[:] = [entry for entry in sys.path if entry not in ours]
    if command[0] == "-m":
        sys.path.insert(0, working_folder)
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(command[0]).resolve().parent))
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")
