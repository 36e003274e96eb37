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
from accelsweep.executor.attempt import Watcher, frozen_spec
from accelsweep.executor.device_lease import Lease, leased
from accelsweep.executor.ipc import Interrupted, Signals
from accelsweep.executor.launch import Launchers
from accelsweep.executor.outcome import check_room, classify, read_results
from accelsweep.executor.processes import last_words
from accelsweep.executor.result_reuse import Present, Versions
from accelsweep.json_documents import sha256_file
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome, now
from accelsweep.state.profiles import keep_profile
from accelsweep.worker.run_spec import RankResult, RunSpec


class NotProfiled(AccelsweepError):
    """The run of a profile ended without one; the message says how, and where its output is."""


def profile_setting(
    folder: SweepFolder, cell: str, steps: int, say: Callable[[str], None], launchers: Launchers | None = None
) -> SettingProfile:
    """Profile `steps` steps of `cell` and keep the result, in the place of an earlier one of this cell.

    `say` is told of waiting for the machine. Raises InputError if no block holds the cell or it takes several nodes,
    NotProfiled where its run failed, and KeyboardInterrupt.
    """
    signals, limits = Signals(), Manifest.read(folder.manifest).settings.limits
    check_room(folder.root, limits)
    folder.profiles.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder.profiles) as attempt,
        signals.caught(),
    ):
        spec = frozen_spec(folder, cell, Path(attempt), "profile", profile_steps=steps)
        spec.write(spec.file())
        started, fingerprint = now(), Present(folder.home, folder.name).read(spec.config)
        holder = f"process {os.getpid()} (profiling {cell} of {folder.name})"
        try:
            with leased(spec.config, holder, signals.pause, say, spec.device_models) as lease:
                result = _run(folder, spec, lease, Watcher(launchers or Launchers(), signals, lambda: None), limits)
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


def _run(folder: SweepFolder, spec: RunSpec, lease: Lease, watcher: Watcher, limits: Limits) -> RankResult:
    """Return rank 0's result. Its output is kept, whatever the end."""
    version = Versions(folder).needed(spec.config)
    ending = watcher.to_the_end(spec, "spawn", lease, version, limits)
    log = folder.profile(spec.run.cell) / LOG_FILE
    log.parent.mkdir(exist_ok=True)
    shutil.move(Path(spec.attempt_folder) / LOG_FILE, log)
    results = read_results(spec, ending.reported)
    if ending.cause == "interrupted" and len(results) < spec.world_size:
        raise Interrupted
    conclusion = classify(ending, results, last_words(log), limits)
    if conclusion.outcome is not Outcome.measured:
        raise NotProfiled(
            f"no profile of setting {spec.run.cell}: {conclusion.outcome}: {conclusion.reason}; see {log}"
        )
    return results[0]
