"""`accelsweep debug`: run a setting in the foreground, with rank 0 in this process, so that pdb works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from accelsweep.cli.options import SweepName, complete_setting
from accelsweep.cli.runs import resolve_setting
from accelsweep.driver.console import say
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, InputError
from accelsweep.executor.attempt import rank_environment, standalone_spec
from accelsweep.executor.code_versions import CodeVersions, ProjectEnvironment, RunCode
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.launch import Launch, Launcher
from accelsweep.installation import foreign_command
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.run_files import read_rank_result
from accelsweep.report.formatting import number
from accelsweep.results import Outcome, RankResult
from accelsweep.tasks import rates_by_task
from accelsweep.temporary_folders import temporary_folder
from accelsweep.worker.run_spec import RunSpec


def debug_setting(folder: SweepFolder, setting: str, launcher: Launcher | None = None) -> RankResult:
    """Run the first repeat of `setting` in a temporary folder, without a timeout; return rank 0's result.

    Ranks other than 0 are new interpreters that print to this terminal and are killed when rank 0 fails. If the project
    has its own environment, rank 0 is a new interpreter as well. Nothing is recorded. Raises InputError if no block of
    the sweep contains the setting, or if the setting needs several nodes, and AccelsweepError if rank 0's interpreter
    dies.
    """

    def pause(seconds: float) -> bool:
        time.sleep(seconds)
        return False  # Ctrl-C ends the wait

    def print_error(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    with temporary_folder("debugging") as attempt:
        spec = standalone_spec(folder, setting, attempt, "debug")
        spec.write()
        holder = f"process {os.getpid()} (debugging {setting})"
        with leased(spec.config, holder, pause, print_error, spec.device_models) as lease:
            _run(spec, lease, launcher or Launcher(), CodeVersions(folder).run_code(spec.config))
        return read_rank_result(spec.rank_result(0))


def _run(spec: RunSpec, lease: Lease, launcher: Launcher, code: RunCode | None) -> None:
    in_project = isinstance(code, ProjectEnvironment) and code.needs_spawn
    python = None if code is None else code.python
    if python is not None and not in_project:
        raise InputError(f"debug uses the current environment: run it with {python}")
    variables = rank_environment(spec, lease, code)
    sys.stderr.flush()
    launch = Launch(spec, "spawn", variables, sys.stderr.fileno(), lease.descriptors, python)
    peers = launcher.start(launch, range(1, spec.world_size)).processes
    environment = dict(os.environ)
    os.environ.update(variables, RANK="0", LOCAL_RANK="0")
    try:
        if in_project:
            command = [*foreign_command(python or sys.executable, "accelsweep.worker.main"), str(spec.file())]
            code_of_rank = subprocess.run(command, check=False).returncode
            if code_of_rank != 0:
                raise AccelsweepError(f"{command[0]} ended with exit code {code_of_rank}")
        else:
            launcher.entry(spec)
    except BaseException:
        for peer in peers:
            os.kill(peer, signal.SIGKILL)
        raise
    finally:
        os.environ.clear()
        os.environ.update(environment)
        for peer in peers:
            os.waitpid(peer, 0)


def debug(
    name: SweepName,
    setting: Annotated[
        str,
        typer.Argument(
            help="the setting's ID or a prefix of it, its label, or its values", autocompletion=complete_setting
        ),
    ],
) -> None:
    """`accelsweep debug NAME SETTING`."""
    folder = existing_sweep(Path.cwd(), name)
    result = debug_setting(folder, resolve_setting(folder, setting))
    say(f"{result.outcome}: {result.reason}" if result.reason else str(result.outcome))
    for metric in dict.fromkeys(rate for rates in rates_by_task().values() for rate in rates):
        if (rate := result.metrics.get(metric)) is not None and rate.value is not None:
            say(f"{number(rate.value, rate.unit)} (one run in the foreground, not recorded)")
    raise typer.Exit(EXIT_OK if result.outcome is Outcome.measured else EXIT_INCOMPLETE)
