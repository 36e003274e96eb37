"""A profile of one setting, in a run of its own: the frozen config, the devices and the processes of a measured run.

Its ranks are fresh interpreters under the sweep's own limits. It holds the machine like any run, so that neither
disturbs the other. Nothing of it is a record.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from accelsweep.config.sweep_options import Limits
from accelsweep.core.recorded.profiles import SettingProfile
from accelsweep.errors import AccelsweepError
from accelsweep.executor.attempt import RankRunner, standalone_spec
from accelsweep.executor.code_versions import CodeVersions
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.ipc import Interrupted, Signals
from accelsweep.executor.launch import Launcher
from accelsweep.executor.outcome import conclude
from accelsweep.executor.preflight import check_disk_space
from accelsweep.executor.recording import read_results
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.files import sha256_file
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome, now
from accelsweep.state.profiles import keep_profile
from accelsweep.worker.run_spec import RankResult, RunSpec


class NotProfiled(AccelsweepError):
    """The run of a profile ended without one; the message says how, and where its output is."""


def profile_setting(
    folder: SweepFolder, cell: str, steps: int, say: Callable[[str], None], launcher: Launcher | None = None
) -> SettingProfile:
    """Profile `steps` steps of `cell` and keep the result, in the place of an earlier one of this cell.

    `say` is told of waiting for the machine. Raises InputError if no block holds the cell or it takes several nodes,
    NotProfiled where its run failed, and KeyboardInterrupt.
    """
    signals, limits = Signals(), Manifest.read(folder.manifest).settings.limits
    check_disk_space(folder.root, limits)
    folder.profiles.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder.profiles) as attempt,
        signals.caught(),
    ):
        spec = standalone_spec(folder, cell, Path(attempt), "profile", profile_steps=steps)
        spec.write(spec.file())
        started, fingerprint = now(), CurrentConditions(folder).read_fingerprint(spec.config)
        holder = f"process {os.getpid()} (profiling {cell} of {folder.name})"
        try:
            with leased(spec.config, holder, signals.pause, say, spec.device_models) as lease:
                result = _run(folder, spec, lease, RankRunner(launcher or Launcher(), signals), limits)
        except Interrupted:
            raise KeyboardInterrupt from None
        assert result.profile is not None, "rank 0 was asked for a profile"
        found = SettingProfile(
            sweep=folder.name,
            cell=cell,
            axes=spec.axes,
            block=spec.block,
            task=spec.config.task,
            started_at=started,
            ranks=spec.world_size,
            found=result.profile,
            fingerprint=fingerprint,
            trace_sha256=sha256_file(spec.trace()),
        )
        keep_profile(folder, found, spec.trace())
    return found


def _run(folder: SweepFolder, spec: RunSpec, lease: Lease, runner: RankRunner, limits: Limits) -> RankResult:
    """Return rank 0's result. Its output is kept, whatever the end."""
    ending = runner.run(spec, "spawn", lease, CodeVersions(folder).require(spec.config), limits)
    results = read_results(spec, ending.reported)
    conclusion = conclude(spec, ending, results, limits)
    log = folder.profile(spec.run.cell) / LOG_FILE
    log.parent.mkdir(exist_ok=True)
    shutil.move(Path(spec.attempt_folder) / LOG_FILE, log)
    if conclusion is None:
        raise Interrupted
    if conclusion.outcome is not Outcome.measured:
        raise NotProfiled(
            f"no profile of setting {spec.run.cell}: {conclusion.outcome}: {conclusion.reason}; see {log}"
        )
    return results[0]
