"""Tries the user's own script for a few steps, outside the sweep, before anything is measured."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace

from accelsweep.config.setting import Setting, with_full_paths
from accelsweep.config.sweep_options import Limits
from accelsweep.executor.attempt import RankRunner
from accelsweep.executor.attempt_outcome import Conclusion, conclude
from accelsweep.executor.code_versions import CodeVersion, ProjectEnvironment
from accelsweep.executor.device_lease import leased
from accelsweep.executor.launch import Launcher
from accelsweep.executor.recording import read_results
from accelsweep.ipc import Interrupted, Signals
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import MeasuredProject
from accelsweep.results import RankResult
from accelsweep.run_config import Measure, Run
from accelsweep.temporary_folders import temporary_folder
from accelsweep.worker.run_spec import RunSpec

_MEASURE = Measure(warmup_steps=2, min_steps=2, min_seconds=0.0, max_steps=2)
"""A trial's window: just long enough to reach the first optimiser steps if gradients are not accumulated."""


@dataclass(frozen=True)
class Trial:
    """How a trial ended, and rank 0's result, if there is one."""

    conclusion: Conclusion
    result: RankResult | None


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
    try:
        return _try_setting(folder, project, setting, limits, version)
    except Interrupted:
        raise KeyboardInterrupt from None


def _try_setting(
    folder: SweepFolder, project: MeasuredProject, setting: Setting, limits: Limits, version: CodeVersion | None
) -> Trial:
    signals = Signals()
    with temporary_folder("trial") as attempt, signals.caught():
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
        holder = f"process {os.getpid()} (a trial of {folder.name})"
        with leased(config, holder, signals.pause, lambda line: print(line, file=sys.stderr)) as lease:  # noqa: T201
            code = ProjectEnvironment.of(project, config, attempt, version)
            ending = RankRunner(Launcher(), signals).run(spec, "spawn", lease, code, limits)
        results = read_results(spec, ending.reported)
        conclusion = conclude(spec, ending, results, limits)
        if conclusion is None:
            raise Interrupted
        return Trial(conclusion, results.get(0))
