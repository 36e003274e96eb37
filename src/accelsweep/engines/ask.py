"""Commands of an engine, and words for a machine that has none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from accelsweep.base.errors import AccelsweepError, InputError
from accelsweep.engines.engine import Engine
from accelsweep.engines.environment import for_commands

_PATIENCE_SECONDS = 60.0


def missing_programs(engine: Engine) -> list[str]:
    """Return the commands of this engine that a sweep needs and that this machine lacks."""
    return [name for name in engine.programs if shutil.which(name) is None]


def refuse_without(engine: Engine, asked: str) -> None:
    """Raise InputError where a command that a sweep needs is missing; `asked` is who submits to this engine."""
    if missing := missing_programs(engine):
        raise InputError(
            f"{asked} submits to {engine.name}, and this machine has no {missing[0]}: "
            "run this on a login node of the cluster, or choose site=local without --profile"
        )


def ask(
    *command: str,
    patience_seconds: float = _PATIENCE_SECONDS,
    environment: Mapping[str, str] | None = None,
    base: Mapping[str, str] | None = None,
) -> str:
    """Return what an engine's command prints; `environment` are further variables, `base` stands in place of ours.

    It heeds none of the variables by which a user changes what Slurm's commands do or print.
    Raises AccelsweepError where it fails, is missing, or does not answer.
    """
    answer = _answer(
        command, patience_seconds, {**for_commands(os.environ if base is None else base), **(environment or {})}
    )
    if answer.returncode != 0:
        raise AccelsweepError(f"{command[0]} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout


def answered(*command: str) -> tuple[bool, str]:
    """Return whether an engine's command said yes, and all that it said.

    Raises AccelsweepError where it is missing, or does not answer.
    """
    answer = _answer(command, _PATIENCE_SECONDS, for_commands(os.environ))
    return answer.returncode == 0, f"{answer.stdout}\n{answer.stderr}"


def _answer(
    command: Sequence[str], patience_seconds: float, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patience_seconds, env=variables
        )
    except FileNotFoundError:
        raise AccelsweepError(f"there is no {command[0]} here: run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise AccelsweepError(f"{command[0]} did not answer within {patience_seconds:.0f} s") from None
