"""The command line."""

from __future__ import annotations

import getpass
import os
import sys

from accelsweep.cli import commands
from accelsweep.cli.typer_app import app, exit_code
from accelsweep.signals import interrupt_on_termination

__all__ = ["app", "commands", "main"]


def main() -> None:
    """Run the command line. Our own errors produce a message and an exit code, never a traceback."""
    _restart_without_strict_variables()
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    _ensure_user_name()
    interrupt_on_termination()
    sys.exit(exit_code(app))


_STRICT_VARIABLES = ("PYTHONWARNINGS", "PYTHONOPTIMIZE", "PYTHONINSPECT")
"""Strict-mode variables that every child Python process would inherit.

PYTHONWARNINGS=error turns Lightning's own warnings into crashes; altair and MLflow fail to import without
docstrings (PYTHONOPTIMIZE=2).
"""


def _restart_without_strict_variables() -> None:
    """Re-execute this command without strict variables, if any are set: this interpreter has already applied them."""
    strict = {name for name in _STRICT_VARIABLES if os.environ.get(name)}
    if strict and sys.orig_argv[1:]:
        environment = {name: value for name, value in os.environ.items() if name not in strict}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - the same command


def _ensure_user_name() -> None:
    """Set a user name if the user has no account, as in a container started with `--user`: Snakemake requires one."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = f"user-{os.getuid()}"
