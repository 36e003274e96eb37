"""Runs a script in this process as `python SCRIPT ARGUMENTS` or `python -m MODULE ARGUMENTS` would."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def run_script(command: Sequence[str]) -> None:
    """Run `command` as the main program: a script's path, or `-m` and a module, followed by arguments.

    Like Python itself, this puts the script's folder (for a module, the working directory) first on the import path.
    """
    working_folder = str(Path.cwd())
    sys.path[:] = [entry for entry in sys.path if entry not in ("", working_folder)]
    if command[0] == "-m":
        sys.path.insert(0, working_folder)
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, str(Path(command[0]).resolve().parent))
    sys.argv = list(command)
    runpy.run_path(command[0], run_name="__main__")
