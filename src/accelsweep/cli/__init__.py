"""The command line: thin commands, each of which imports what it needs when it is called, so that `--help` is quick."""

from __future__ import annotations

import getpass
import os
import sys

from accelsweep.base.interrupts import end_as_by_ctrl_c
from accelsweep.cli import comparing, measuring, results, upkeep
from accelsweep.cli.app import app
from accelsweep.commands.line.command_line import exit_code

__all__ = ["app", "comparing", "main", "measuring", "results", "upkeep"]


def main() -> None:
    """Run the command line; turn our errors into one message and an exit code, and never show a traceback for them."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    _name_the_user()
    end_as_by_ctrl_c()
    sys.exit(exit_code(app))


def _name_the_user() -> None:
    """Give a user without an account a name: in a container started with `--user`, Snakemake fails for want of one."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"user-{os.getuid()}"
