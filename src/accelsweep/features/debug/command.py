"""One cell in the foreground: rank 0 is this very process, with its terminal and pdb; nothing is recorded."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import typer

from accelsweep.cli.options import Setting, SweepName
from accelsweep.cli.runs import full_name
from accelsweep.config.tasks import UNIT_OF
from accelsweep.driver.console import say
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, InputError
from accelsweep.executor.attempt import rank_environment, standalone_spec
from accelsweep.executor.code_versions import CodeVersion, CodeVersions
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.launch import Launch, Launcher
from accelsweep.records.cleanup import temporary_folder
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.run_record import Outcome
from accelsweep.report.units import number
from accelsweep.worker.run_spec import RankResult, RunSpec

_FIRST_RANK = {"RANK": "0", "LOCAL_RANK": "0"}


def debug_cell(folder: SweepFolder, cell: str, launcher: Launcher | None = None) -> RankResult:
    """Run the first repeat of `cell` here and return rank 0's result; its files lie in a folder that is deleted then.

    There is no time limit. Other ranks are fresh interpreters that print to this terminal too and end with rank 0.
    Raises InputError if no block of the sweep holds the cell, or if it takes several nodes.
    """
    launcher = launcher or Launcher()
    with temporary_folder("debugging") as attempt:
        spec = standalone_spec(folder, cell, attempt, "debug")
        spec.write(spec.file())
        holder, models = f"process {os.getpid()} (debugging {cell})", spec.device_models
        with leased(spec.config, holder, _pause, _say, models) as lease:
            _run(spec, lease, launcher, CodeVersions(folder).require(spec.config))
        return RankResult.read(spec.rank_result(0))


def _run(spec: RunSpec, lease: Lease, launcher: Launcher, version: CodeVersion | None) -> None:
    if version is not None and version.python is not None:
        raise InputError(f"debug runs in this environment: give the command with {version.python}")
    shared = rank_environment(spec, lease, version)
    sys.stderr.flush()
    launch = Launch(spec, "spawn", shared, sys.stderr.fileno(), lease.descriptors)
    peers = launcher.start(launch, range(1, spec.world_size)).processes
    try:
        with _environment({**shared, **_FIRST_RANK}):
            launcher.entry(spec)
    except BaseException:
        for peer in peers:
            os.kill(peer, signal.SIGKILL)
        raise
    finally:
        for peer in peers:
            os.waitpid(peer, 0)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _pause(seconds: float) -> bool:
    time.sleep(seconds)
    return False  # Ctrl-C ends the wait


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


# `accelsweep debug`: one cell of a sweep in the foreground.


def debug_in_foreground(home: Path, name: str, cell: str) -> int:
    """Run the cell whose name begins with `cell`; return 0 if it was measured, else 1."""
    folder = existing_sweep(home, name)
    result = debug_cell(folder, full_name(folder, cell))
    say(f"{result.outcome}" + (f": {result.reason}" if result.reason else ""))
    for name in UNIT_OF:
        if (rate := result.metrics.get(name)) is not None and rate.value is not None:
            say(f"{number(rate.value, rate.unit)} (one run in the foreground, not recorded)")
    return EXIT_OK if result.outcome is Outcome.measured else EXIT_INCOMPLETE


def debug(name: SweepName, setting: Setting) -> None:
    """`accelsweep debug NAME SETTING`."""
    raise typer.Exit(debug_in_foreground(Path.cwd(), name, setting))
