"""The command line: thin commands, each of which imports what it needs when it is called, so that `--help` is quick."""

from __future__ import annotations

import getpass
import os
import sys

from accelsweep.cli import commands
from accelsweep.cli.typer_app import app, exit_code
from accelsweep.signals import interrupt_on_termination

__all__ = ["app", "commands", "main"]


def main() -> None:
    """Run the command line; turn our errors into one message and an exit code, and never show a traceback for them."""
    _begin_anew_in_an_ordinary_python()
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    _name_the_user()
    interrupt_on_termination()
    sys.exit(exit_code(app))


_STRICT = ("PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONINSPECT")
"""Orders to every Python that we start. With `error` Lightning's own warnings end each run, and without docstrings
(PYTHONOPTIMIZE=2) altair and MLflow cannot be imported."""


def _begin_anew_in_an_ordinary_python() -> None:
    """Start this command again without the orders, where there are any: they were obeyed when the interpreter began."""
    given = {name for name in _STRICT if os.environ.get(name)}
    if given and sys.orig_argv[1:]:
        kept = {name: value for name, value in os.environ.items() if name not in given}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept)  # noqa: S606 - the same command


def _name_the_user() -> None:
    """Give a user without an account a name: in a container started with `--user`, Snakemake fails for want of one."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"user-{os.getuid()}"
