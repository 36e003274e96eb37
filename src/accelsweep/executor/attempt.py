"""One attempt at one run: lease devices, launch, monitor, classify, record. Retries are left to `block`."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from accelsweep.config.setting import with_full_paths
from accelsweep.config.sweep_options import Limits
from accelsweep.devices import linux
from accelsweep.errors import InputError
from accelsweep.executor.attempt_outcome import Conclusion, conclude, ending_doubts
from accelsweep.executor.batch_size_search import BatchSizeSearch
from accelsweep.executor.code_versions import ProjectEnvironment, RunCode
from accelsweep.executor.device_lease import NO_LEASE, Lease, NotEnoughDevices, leased
from accelsweep.executor.early_stop import quality_put_off
from accelsweep.executor.launch import Launch, Launcher, LaunchMethod, LocalRanks, Ranks, children, rendezvous
from accelsweep.executor.multi_node import check_multi_node, start_on_nodes
from accelsweep.executor.preflight import check_disk_space
from accelsweep.executor.quiet_wait import QuietWait, cores_needed
from accelsweep.executor.recording import (
    Provenance,
    read_results,
    results_after_window,
    source_doubts,
    write_record,
)
from accelsweep.executor.result_reuse import CurrentConditions, file_identity
from accelsweep.executor.run_log import RunLog
from accelsweep.executor.run_watchdog import Ending, Monitor
from accelsweep.executor.sampler import Sampler, device_identities, discard_samples, read_samples
from accelsweep.git import git_state
from accelsweep.ipc import Signals
from accelsweep.planning.resources import device_models_for, threads_per_rank
from accelsweep.records.file_lock import HeldLock
from accelsweep.records.layout import LOG_FILE, SweepFolder
from accelsweep.records.plan import Block, Manifest
from accelsweep.records.run_files import RunFolder, block_of
from accelsweep.records.run_record import now
from accelsweep.results import Doubt, Outcome, RankResult
from accelsweep.run_config import Run, SettingConfig
from accelsweep.schedulers.select import this_job
from accelsweep.worker.run_spec import RunSpec


@cache
def _job_log() -> str | None:
    """Return the path of this job's log, querying the scheduler if necessary; None outside a job."""
    job = this_job()
    return job.log() if job else None


def rank_environment(spec: RunSpec, lease: Lease, code: RunCode | None) -> dict[str, str]:
    """Return the environment variables that an attempt sets for all ranks; the setting's `env` takes precedence."""
    of_code = {} if code is None else code.environment
    return {**lease.environment, **rendezvous(spec), **of_code, **spec.config.env}


@dataclass(frozen=True)
class RankRunner:
    """Runs ranks to completion, calling `heartbeat` about once a second.

    `cpus` is the number of CPU cores on each node of a multi-node run.
    """

    launcher: Launcher
    signals: Signals
    sampler: Sampler
    heartbeat: Callable[[], None] = lambda: None
    cpus: int = 0

    def run(self, spec: RunSpec, method: LaunchMethod, lease: Lease, code: RunCode | None, limits: Limits) -> Ending:
        """Start the ranks of `spec`, wait for them within `limits`, and return how they ended."""
        oom_kills_before = linux.oom_kills()
        python, config = None if code is None else code.python, spec.config
        interval = None if method == "srun" else limits.sample_seconds  # each node has a sampler of its own
        with (
            self.sampler.sample(
                Path(spec.attempt_folder), interval, config.accelerator, lease, whole_process=config.whole_process
            ) as watch,
            RunLog(Path(spec.attempt_folder) / LOG_FILE, limits.log_bytes) as log,
        ):
            unrelated = children()
            environment = rank_environment(spec, lease, code)
            launch = Launch(spec, method, environment, log.write_end, lease.descriptors, python)
            ranks: Ranks = (
                start_on_nodes(launch, self.cpus, limits.sample_seconds)
                if method == "srun"
                else self.launcher.start(launch)
            )
            log.close_write_end()
            watch(ranks.running() if isinstance(ranks, LocalRanks) else {})
            try:
                monitor = Monitor(spec, ranks, limits, log, self.signals, self.heartbeat)
                return monitor.wait(oom_kills_before, unrelated)
            except BaseException:
                ranks.signal(signal.SIGKILL)
                raise


@dataclass(frozen=True)
class AttemptRunner:
    """Attempts the runs of one block; `lock` is the block's lock."""

    folder: SweepFolder
    manifest: Manifest
    block: Block
    current: CurrentConditions
    launcher: Launcher
    signals: Signals
    sampler: Sampler
    lock: HeldLock
    say: Callable[[str], None]

    @property
    def _limits(self) -> Limits:
        return self.manifest.options.limits

    @cached_property
    def _quiet(self) -> QuietWait:
        return QuietWait(self._limits.quiet_wait_seconds, self._pause)

    def run_folder(self, run: Run) -> RunFolder:
        """Return the folder of `run`."""
        return RunFolder(self.folder.run(run.name), run.name)

    def attempt(self, run: Run, position: int) -> Conclusion | None:
        """Make one attempt at `run` and write its record; return None if the attempt was interrupted.

        Unless its window was disturbed, the attempt becomes the run's result. `position` is the number of attempts that
        the block has made before.
        """
        config, site = self.block.configs[run.setting], self.manifest.site
        try:
            if config.num_nodes > 1:
                check_multi_node(config, site.of_kind(self.block.resources.node_kind).jobs.container)
                conclusion = self._attempt(NO_LEASE, run, "srun", position)  # each node leases its own devices
            else:
                holder = f"process {os.getpid()} ({run.name} of {self.folder.name})"
                with leased(config, holder, self._pause, self.say, device_models_for(config, site)) as lease:
                    waited = 0.0 if config.measure.shared else self._wait_until_quiet(run, lease)
                    conclusion = self._attempt(lease, run, self._launch_method(config), position, waited)
        except NotEnoughDevices as error:
            conclusion = Conclusion(Outcome.crashed, f"{socket.gethostname()}: {error}")
            return self.record_without_launch(run, position, conclusion)
        finally:
            self.lock.clear_run()
        if conclusion is not None and conclusion.disturbance is None:
            self.run_folder(run).promote_latest()
        return conclusion

    def _wait_until_quiet(self, run: Run, lease: Lease) -> float:
        """Wait for others to stop using the machine and the leased devices; return the seconds waited."""
        config = self.block.configs[run.setting]

        def report(busy: str) -> None:
            self.say(f"{run.name}: waiting for a quiet machine (limits.quiet_wait_seconds): {busy}")
            self.lock.set_waiting_for(busy)

        needed = cores_needed(config, threads_per_rank(config, self.manifest.site))
        return self._quiet.wait(needed, device_identities(lease), report)

    def record_without_launch(self, run: Run, position: int, conclusion: Conclusion) -> Conclusion:
        """Record a conclusion that was reached without launching the run."""
        spec = self._spec(run, self._begin(run), position)
        self.lock.confirm()
        config, provenance = self.block.configs[run.setting], self._provenance(spec, "none")
        write_record(self.run_folder(run), spec, config, conclusion, {}, provenance)
        self.run_folder(run).promote(spec.attempt)
        self.say(f"{run.name}: {conclusion.outcome}: {conclusion.reason}")
        return conclusion

    def _pause(self, seconds: float) -> bool:
        self.lock.heartbeat()
        return self.signals.pause(seconds)

    def _launch_method(self, config: SettingConfig) -> LaunchMethod:
        code = self.current.versions.run_code(config)
        if isinstance(code, ProjectEnvironment) and code.python is not None:
            return self.launcher.project_method(config, code.python, code.environment, self.say)
        if code is not None and code.needs_spawn:
            return "spawn"
        return self.launcher.method_for(config, self.say)

    def _begin(self, run: Run) -> int:
        return self.run_folder(run).begin(socket.gethostname(), now(), _job_log())

    def _attempt(
        self, lease: Lease, run: Run, method: LaunchMethod, position: int, waited_seconds: float = 0.0
    ) -> Conclusion | None:
        check_disk_space(self.folder.root, self._limits)
        number = self._begin(run)
        try:
            return self._measure(lease, self._spec(run, number, position), method, waited_seconds)
        finally:
            self.run_folder(run).discard_half_written(number)
            discard_samples(self.run_folder(run).attempt(number))  # of an interrupted attempt
            self.run_folder(run).close(number)  # this process is alive, so the run did not kill it

    def _measure(self, lease: Lease, spec: RunSpec, method: LaunchMethod, waited_seconds: float) -> Conclusion | None:
        self.say(f"{spec.run.name}: attempt {spec.attempt} ({method}, {spec.world_size} ranks)")
        spec.write()
        provenance = self._provenance(spec, method, waited_seconds)
        self.lock.set_run(spec.run.name, provenance.started_at)
        runner = RankRunner(self.launcher, self.signals, self.sampler, self.lock.heartbeat, self.block.resources.cpus)
        code = self.current.versions.run_code(spec.config)

        def run_ranks(spec: RunSpec, limits: Limits) -> Ending:
            return runner.run(spec, method, lease, code, limits)

        results: Mapping[int, RankResult]
        largest_batch, note, doubts = None, "", list[Doubt]()
        if spec.config.task == "largest_batch":
            search = BatchSizeSearch(spec, self._limits, run_ranks, self.say)
            conclusion, results, largest_batch = search.run()
            wall_seconds = search.elapsed_seconds
        else:
            ending = run_ranks(spec, self._limits)
            results, wall_seconds = read_results(spec, ending.reported), ending.wall_seconds
            conclusion = conclude(spec, ending, results, self._limits)
            if conclusion is not None:
                if (measured := results_after_window(spec, results, conclusion)) is not None:
                    note = f"; it failed after the window: {conclusion.reason}"
                    results, conclusion = measured, Conclusion(Outcome.measured, None)
                doubts = ending_doubts(ending, conclusion)
        if conclusion is None:
            self.say(f"{spec.run.name}: interrupted; it will be measured again")
            return None
        if conclusion.outcome is Outcome.crashed:
            check_disk_space(self.folder.root, self._limits)  # a full disk is not the run's fault
        doubts += source_doubts(provenance.fingerprint, self.current.read_fingerprint(spec.config))
        self.lock.confirm()
        run_folder, config = self.run_folder(spec.run), self.block.configs[spec.run.setting]
        read = sorted({path for result in results.values() for path in result.files})
        version = self.current.versions.get(config)
        home = self.folder.home if version is None else version.home
        files = {path: file_identity(home / path) for path in read}
        samples = read_samples(Path(spec.attempt_folder))
        record = write_record(
            run_folder,
            spec,
            config,
            conclusion,
            results,
            provenance,
            wall_seconds,
            doubts,
            largest_batch,
            files,
            samples,
        )
        self._quiet.observe(samples.rows, record.disturbance)
        reason = f": {conclusion.reason}" if conclusion.reason else ""
        reason += f"; disturbed: {record.disturbance}" if record.disturbance else ""
        self.say(f"{spec.run.name}: {conclusion.outcome} after {wall_seconds:.1f} s{note}{reason}")
        return replace(conclusion, disturbance=record.disturbance)

    def _provenance(self, spec: RunSpec, launcher: str, waited_seconds: float = 0.0) -> Provenance:
        """Return the conditions as they are just before the ranks import the user's code."""
        version = self.current.versions.get(spec.config)
        git = git_state(self.folder.home if version is None else version.folder)
        return Provenance(launcher, now(), self.current.read_fingerprint(spec.config), git, waited_seconds)

    def _spec(self, run: Run, attempt: int, position: int) -> RunSpec:
        spec = _run_spec(self.folder, self.manifest, self.block, run, self.run_folder(run).attempt(attempt))
        put_off = quality_put_off(self.folder, self.manifest, run.setting, spec.config)
        if put_off is not None:
            measure = replace(spec.config.measure, quality_samples=None)
            spec = replace(spec, config=replace(spec.config, measure=measure), quality_put_off=put_off)
        return replace(
            spec,
            planned_position=self.block.runs.index(run),
            position=position,
            attempt=attempt,
            ceiling_cache=str(self.folder.ceilings(self.block.name)),
            silence_seconds=self._limits.silence_seconds,
            run_seconds=self._limits.run_seconds,
        )


def standalone_spec(
    folder: SweepFolder, setting: str, attempt: Path, command: str, substitute: str | None = None, extra_steps: int = 0
) -> RunSpec:
    """Return the spec for running a setting's first repeat outside the sweep, with its files in `attempt`.

    Raises InputError, naming the `command`, if no block contains the setting or the setting uses several nodes, and
    DamagedFile under the same conditions as `block_of`.
    """
    manifest = Manifest.read(folder.manifest)
    block = block_of(folder, manifest, setting)
    config = block.configs[setting]
    if config.num_nodes > 1:
        raise InputError(f"setting {setting!r} uses {config.num_nodes} nodes, but {command} supports only one node")
    run = Run.of(setting, 0, config.seed)
    return replace(_run_spec(folder, manifest, block, run, attempt), substitute=substitute, extra_steps=extra_steps)


def _run_spec(folder: SweepFolder, manifest: Manifest, block: Block, run: Run, attempt_folder: Path) -> RunSpec:
    config = block.configs[run.setting]
    return RunSpec(
        sweep=folder.name,
        block=block.name,
        run=run,
        planned_position=0,
        position=0,
        attempt=1,
        config=with_full_paths(config, folder.home),
        axes=block.axes[run.setting],
        world_size=config.ranks,
        attempt_folder=str(attempt_folder),
        threads=threads_per_rank(config, manifest.site),
        device_models=device_models_for(config, manifest.site),
    )
