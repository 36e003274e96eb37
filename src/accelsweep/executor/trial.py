"""Tries the user's own script for a few steps, outside the sweep, before anything is measured.

`main` does so in a process forked by the fork server, which spares the ranks the imports of torch and Lightning.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from accelsweep.config.setting import Setting, with_full_paths
from accelsweep.config.sweep_options import Limits
from accelsweep.devices import linux
from accelsweep.errors import EXIT_OK
from accelsweep.executor.attempt import RankRunner
from accelsweep.executor.attempt_outcome import conclude
from accelsweep.executor.code_versions import CodeVersion, ProjectEnvironment
from accelsweep.executor.device_lease import NotEnoughDevices, leased
from accelsweep.executor.launch import Launcher, LaunchMethod
from accelsweep.executor.recording import read_results
from accelsweep.executor.sampler import Sampler
from accelsweep.files import write_json
from accelsweep.fork_client import Fork, has_project_server, request_fork
from accelsweep.ipc import Interrupted, Signals, receive
from accelsweep.json_documents import Frozen
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import MeasuredProject
from accelsweep.results import RankResult
from accelsweep.run_config import Measure, Run, SettingConfig
from accelsweep.temporary_folders import temporary_folder
from accelsweep.worker.run_spec import RunSpec

_MEASURE = Measure(warmup_steps=2, min_steps=2, min_seconds=0.0, max_steps=2)
"""A trial's window: just long enough to reach the first optimiser steps if gradients are not accumulated."""

_REQUEST, _ANSWER = "request.json", "answer.json"


@dataclass(frozen=True)
class Trial:
    """Why a trial failed, if it did, and rank 0's result, if there is one."""

    reason: str | None
    result: RankResult | None


class _Request(Frozen):
    """What a trial needs besides the run's spec, in whose folder it lies."""

    project: MeasuredProject
    limits: Limits


class _Answer(Frozen):
    """How a trial ended, with the ranks that have results, or why there was none on this machine."""

    reason: str | None = None
    reported: frozenset[int] = frozenset()
    not_enough_devices: str | None = None


def try_setting(
    folder: SweepFolder,
    project: MeasuredProject,
    setting: Setting,
    limits: Limits,
    version: CodeVersion | None = None,
) -> Trial:
    """Run a few steps of a setting on this machine. Raises KeyboardInterrupt if stopped, and NotEnoughDevices.

    The first batch may have any size. `version` is the setting's version of the script, if the sweep compares any.
    """
    with temporary_folder("trial") as attempt:
        config = with_full_paths(setting.config, folder.home)
        spec = RunSpec(
            sweep=folder.name,
            block="trial",
            run=Run.of(setting.name, 0, config.seed),
            planned_position=0,
            position=0,
            attempt=1,
            config=replace(config, measure=_MEASURE),
            axes=setting.axes,
            world_size=config.world_size,
            attempt_folder=str(attempt),
            any_batch_size=True,
        )
        spec.write()
        request = _Request(project=project, limits=limits)
        answer = None
        # A server that has composed the config is ready. If it has only just been started, one rank alone is sooner.
        if version is None and project.python is None and (project.kind != "script" or spec.world_size > 1):
            answer = _try_in_fork(spec, request)
        if answer is None:
            answer = _try(spec, request, version, None)
        if answer is None:
            raise KeyboardInterrupt
        if answer.not_enough_devices is not None:
            raise NotEnoughDevices(answer.not_enough_devices)
        return Trial(answer.reason, read_results(spec, answer.reported).get(0))


def _try_in_fork(spec: RunSpec, request: _Request) -> _Answer | None:
    """Have the fork server try the run; None if there is no server, it declines, or its fork is killed."""
    write_json(Path(spec.attempt_folder) / _REQUEST, request.model_dump(mode="json"))
    fork = request_fork("accelsweep.executor.trial", [str(spec.file())])
    if not isinstance(fork, Fork):
        return None
    with fork.connection:
        try:
            receive(fork.connection)
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                os.kill(fork.pid, signal.SIGTERM)
            receive(fork.connection)  # it ends its ranks first
            raise
    answer = Path(spec.attempt_folder) / _ANSWER
    return _Answer.model_validate_json(answer.read_bytes()) if answer.exists() else None


def main() -> int:
    """Try the run whose spec the command line names, in a process that may fork its ranks."""
    spec = RunSpec.read(Path(sys.argv[1]))
    request = _Request.model_validate_json((Path(spec.attempt_folder) / _REQUEST).read_bytes())
    linux.adopt_orphans()
    answer = _try(spec, request, None, Launcher(safe=True))
    if answer is not None:
        write_json(Path(spec.attempt_folder) / _ANSWER, answer.model_dump(mode="json"))
    return EXIT_OK


def _try(spec: RunSpec, request: _Request, version: CodeVersion | None, launcher: Launcher | None) -> _Answer | None:
    """Run the ranks of `spec`, by default in fresh interpreters; None if stopped."""
    signals, config = Signals(), spec.config
    code = ProjectEnvironment.of(request.project, config, Path(spec.attempt_folder), version)
    holder = f"process {os.getpid()} (a trial of {spec.sweep})"
    try:
        with signals.caught(), leased(config, holder, signals.pause, _say) as lease:
            launcher, method = _launcher_for(config, code, launcher)
            with contextlib.closing(launcher), Sampler() as sampler:
                ending = RankRunner(launcher, signals, sampler).run(spec, method, lease, code, request.limits)
    except Interrupted:
        return None
    except NotEnoughDevices as error:
        return _Answer(not_enough_devices=str(error))
    conclusion = conclude(spec, ending, read_results(spec, ending.reported), request.limits)
    return None if conclusion is None else _Answer(reason=conclusion.reason, reported=ending.reported)


def _launcher_for(
    config: SettingConfig, code: ProjectEnvironment, launcher: Launcher | None
) -> tuple[Launcher, LaunchMethod]:
    """Return what starts the ranks, and how: forked if `launcher` or the command's server for the project can."""
    if launcher is not None and not code.needs_spawn:
        return launcher, launcher.method_for(config, _say)
    ours = Launcher()
    if code.python is not None and has_project_server(code.python, code.package):
        return ours, ours.project_method(config, code.python, code.environment, _say)
    return ours, "spawn"


def _say(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - the console of the command
