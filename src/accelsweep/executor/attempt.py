"""One attempt at one run: lease, launch, watch, classify, record. Whether there is another is decided elsewhere."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import placed
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Limits
from accelsweep.devices import linux
from accelsweep.errors import InputError
from accelsweep.executor.batch_size_search import Search
from accelsweep.executor.device_lease import NOTHING, Lease, NotEnoughDevices, leased
from accelsweep.executor.ipc import Signals
from accelsweep.executor.launch import Launch, Launchers, LaunchKind, rendezvous
from accelsweep.executor.monitor import Ending, Watch
from accelsweep.executor.multi_node import check_job, start_across_nodes
from accelsweep.executor.outcome import (
    Circumstances,
    Conclusion,
    check_room,
    classify,
    ending_doubts,
    job_log,
    kept_rates,
    make_record,
    merge_steps,
    read_results,
    source_doubts,
)
from accelsweep.executor.processes import LocalRanks, Ranks, RunLog, children, last_words, where_it_stood
from accelsweep.executor.result_reuse import Present, VersionAtHand, Versions
from accelsweep.git import git_state
from accelsweep.planning.resources import models_for, threads_per_rank
from accelsweep.records.file_lock import Holder
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.plan import Block, Manifest, Run
from accelsweep.records.run_files import RunFolder, block_of
from accelsweep.records.run_record import Doubt, Frontier, Outcome, now
from accelsweep.records.sweep_progress import read_progress
from accelsweep.worker.run_spec import RankResult, RunSpec

# The processes of one attempt, from their start to the death of the last one, with their output in the log.


def environment_of(spec: RunSpec, lease: Lease, version: VersionAtHand | None) -> dict[str, str]:
    """Return the variables that all ranks of an attempt have beside this process's own; those of `env` win."""
    own = {} if version is None else version.environment
    return {**lease.environment, **rendezvous(spec), **own, **spec.config.env}


@dataclass(frozen=True)
class Watcher:
    """The common part of all attempts of a supervisor. `beat` is called about once a second while ranks run.

    `cpus` are those of a block's nodes, for ranks across nodes.
    """

    launchers: Launchers
    signals: Signals
    beat: Callable[[], None]
    cpus: int = 0

    def to_the_end(
        self, spec: RunSpec, kind: LaunchKind, lease: Lease, version: VersionAtHand | None, limits: Limits
    ) -> Ending:
        """Start the ranks of `spec`, wait for them within `limits`, and return how they ended."""
        before, strangers = linux.oom_kills(), children()
        python = None if version is None else version.known.version.python
        with RunLog(Path(spec.attempt_folder) / LOG_FILE, limits.log_bytes) as log:
            launch = Launch(spec, kind, environment_of(spec, lease, version), log.write_end, lease.descriptors, python)
            ranks = self._start(launch)
            log.close_write_end()
            watch = Watch(spec, ranks, limits, log, self.signals, self.beat)
            try:
                return watch.until_the_end(before, strangers)
            except BaseException:
                ranks.signal(signal.SIGKILL)
                raise

    def _start(self, launch: Launch) -> Ranks:
        if launch.kind == "srun":
            return start_across_nodes(launch, self.cpus)
        return LocalRanks(self.launchers.start(launch))


_NO_STEPS = Doubt(
    code="no_steps",
    message="the rate was measured, but the time of each step could not be kept",
    remedy="read run.log; without the steps nobody can tell whether the window was steady",
)


@dataclass(frozen=True)
class Runner:
    """The common parts of all attempts of a block."""

    folder: SweepFolder
    block: Block
    limits: Limits
    site: Site
    present: Present
    launchers: Launchers
    signals: Signals
    hold: Holder
    say: Callable[[str], None]

    @cached_property
    def versions(self) -> Versions:
        """The versions of the sweep."""
        return Versions(self.folder)

    def attempt(self, run: Run) -> Conclusion | None:
        """Make one attempt at `run` and leave its record; None if it was interrupted before it came to an end."""
        config = self.block.configs[run.cell]
        try:
            if config.num_nodes > 1:
                check_job(config, self.site.of_kind(self.block.resources.node_kind).jobs.container)
                return self._on(NOTHING, run, "srun")  # each node leases its own devices
            holder = f"process {os.getpid()} ({run.name} of {self.folder.name})"
            with leased(config, holder, self._pause, self.say, models_for(config, self.site)) as lease:
                return self._on(lease, run, self._kind(config))
        except NotEnoughDevices as error:
            return self.without_launch(run, Conclusion(Outcome.crashed, f"{socket.gethostname()}: {error}"))
        finally:
            self.hold.idle()

    def _kind(self, config: CellConfig) -> LaunchKind:
        version = self.versions.needed(config)
        if version is not None and version.needs_own_interpreter:
            return "spawn"
        return self.launchers.kind_for(config, self.say)

    def _pause(self, seconds: float) -> bool:
        self.hold.beat()
        return self.signals.pause(seconds)

    def without_launch(self, run: Run, conclusion: Conclusion) -> Conclusion:
        """Record a conclusion that was reached without starting anything."""
        place = self._place(run)
        spec = self._spec(run, place.begin(socket.gethostname(), now(), job_log()))
        self._conclude(spec, conclusion, {}, self._circumstances(spec, "none"), [])
        return conclusion

    def _on(self, lease: Lease, run: Run, kind: LaunchKind) -> Conclusion | None:
        check_room(self.folder.root, self.limits)
        place = self._place(run)
        number = place.begin(socket.gethostname(), now(), job_log())
        try:
            return self._measure(lease, self._spec(run, number), kind)
        finally:
            place.discard_half_written(number)
            place.unmark(number)  # we are still here, so the run did not take us down

    def _measure(self, lease: Lease, spec: RunSpec, kind: LaunchKind) -> Conclusion | None:
        self.say(f"{spec.run.name}: attempt {spec.attempt} ({kind}, {spec.world_size} ranks)")
        spec.write(spec.file())
        known = self._circumstances(spec, kind)
        self.hold.running(spec.run.name, known.started_at)
        if spec.config.task == "memory_frontier":
            return self._search(lease, spec, kind, known)
        ending = self._processes(lease, spec, kind, self.limits)
        results = read_results(spec, ending.reported)
        if ending.cause == "interrupted" and len(results) < spec.world_size:
            self.say(f"{spec.run.name}: stopped before its end; it will be measured again")
            return None
        log = self._place(spec.run).log_file(spec.attempt)
        stood = where_it_stood(log, read_progress(spec.progress()) or 0) if ending.stacks else ""
        conclusion = classify(ending, results, last_words(log), self.limits, stood)
        rest = ""
        if conclusion.outcome not in (Outcome.measured, Outcome.diverged):
            kept = kept_rates(spec, results, conclusion.reason)
            if kept is not None:
                rest = f"; what follows the window is not known: {conclusion.reason}"
                results, conclusion = kept, Conclusion(Outcome.measured, None)
        if conclusion.outcome is Outcome.crashed:
            check_room(self.folder.root, self.limits)  # a full disk is not the run's fault
        doubts = ending_doubts(ending, conclusion) + source_doubts(known.fingerprint, self.present.read(spec.config))
        self._conclude(spec, conclusion, results, replace(known, wall_seconds=ending.wall_seconds), doubts, rest=rest)
        return conclusion

    def _search(self, lease: Lease, spec: RunSpec, kind: LaunchKind, known: Circumstances) -> Conclusion | None:
        def launch(one: RunSpec, limits: Limits) -> Ending:
            return self._processes(lease, one, kind, limits)

        log = self._place(spec.run).log_file(spec.attempt)
        found = Search(spec, self.limits, launch, log, self.say).run()
        if found.conclusion is None:
            self.say(f"{spec.run.name}: stopped before its end; it will be measured again")
            return None
        if found.conclusion.outcome is Outcome.crashed:
            check_room(self.folder.root, self.limits)
        doubts = source_doubts(known.fingerprint, self.present.read(spec.config))
        known = replace(known, wall_seconds=found.wall_seconds)
        self._conclude(spec, found.conclusion, found.results, known, doubts, found.frontier)
        return found.conclusion

    def _processes(self, lease: Lease, spec: RunSpec, kind: LaunchKind, limits: Limits) -> Ending:
        watcher = Watcher(self.launchers, self.signals, self.hold.beat, self.block.resources.cpus)
        return watcher.to_the_end(spec, kind, lease, self.versions.needed(spec.config), limits)

    def _conclude(
        self,
        spec: RunSpec,
        conclusion: Conclusion,
        results: Mapping[int, RankResult],
        known: Circumstances,
        doubts: list[Doubt],
        frontier: Frontier | None = None,
        rest: str = "",
    ) -> None:
        self.hold.confirm()
        place = self._place(spec.run)
        steps = place.steps_file(spec.attempt)
        kept = merge_steps(spec, steps)
        if conclusion.outcome is Outcome.measured and not kept and frontier is None:
            doubts = [*doubts, _NO_STEPS]
        config = self.block.configs[spec.run.cell]
        record = make_record(spec, config, conclusion, results, known, doubts, steps if kept else None, frontier)
        record.write(place.record_file(spec.attempt))
        place.promote(spec.attempt)
        for rank in range(spec.world_size):
            spec.rank_steps(rank).unlink(missing_ok=True)
            spec.rank_window(rank).unlink(missing_ok=True)
            spec.pulse(rank).unlink(missing_ok=True)
        self.say(f"{spec.run.name}: {conclusion.outcome} after {known.wall_seconds:.1f} s{rest}{_because(conclusion)}")

    def _circumstances(self, spec: RunSpec, launcher: str) -> Circumstances:
        """Return the present facts, just before the ranks import the user's code; the duration is added later."""
        version = self.versions.of(spec.config)
        git = git_state(self.folder.home if version is None else version.folder)
        return Circumstances(launcher, now(), 0.0, self.present.read(spec.config), git)

    def _place(self, run: Run) -> RunFolder:
        return RunFolder(self.folder.run(run.name), run.name)

    def _spec(self, run: Run, attempt: int) -> RunSpec:
        config = self.block.configs[run.cell]
        return RunSpec(
            sweep=self.folder.name,
            block=self.block.name,
            run=run,
            position=self.block.runs.index(run),
            attempt=attempt,
            config=placed(config, self.folder.home),
            axes=self.block.axes[run.cell],
            world_size=config.world_size,
            attempt_folder=str(self._place(run).attempt(attempt)),
            threads=threads_per_rank(config, self.site),
            ceilings=str(self.folder.ceilings(self.block.name)),
            silence_seconds=self.limits.silence_seconds,
            run_seconds=self.limits.run_seconds,
            device_models=models_for(config, self.site),
        )


def _because(conclusion: Conclusion) -> str:
    return f": {conclusion.reason}" if conclusion.reason else ""


# The frozen config of one setting, as its block has it, for a run that is none of the sweep's: watched or profiled.


def frozen_spec(
    folder: SweepFolder, cell: str, attempt: Path, command: str, profile_steps: int | None = None
) -> RunSpec:
    """Return the spec of the first repeat of `cell`, with its files in the folder `attempt`.

    Raises InputError, which names the `command`, if no block of the sweep holds the cell, or if it takes several nodes.
    Raises DamagedFile as `block_of` does.
    """
    manifest = Manifest.read(folder.manifest)
    block = block_of(folder, manifest, cell)
    config = block.configs[cell]
    if config.num_nodes > 1:
        raise InputError(f"setting {cell!r} takes {config.num_nodes} nodes; {command} has this one alone")
    return RunSpec(
        sweep=folder.name,
        block=block.name,
        run=Run.of(cell, 0, config.seed),
        position=0,
        attempt=1,
        config=placed(config, folder.home),
        axes=block.axes[cell],
        world_size=config.world_size,
        attempt_folder=str(attempt),
        threads=threads_per_rank(config, manifest.site),
        device_models=models_for(config, manifest.site),
        profile_steps=profile_steps,
    )
