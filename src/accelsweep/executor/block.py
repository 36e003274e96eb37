"""Execute one block: skip reusable results, measure the remaining runs in order, write the done file for Snakemake."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from accelsweep.devices import linux
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, DamagedFile, InputError
from accelsweep.executor.attempt import AttemptRunner
from accelsweep.executor.attempt_outcome import Conclusion, memory_failure
from accelsweep.executor.block_lock import block_lock
from accelsweep.executor.early_stop import decide_early
from accelsweep.executor.launch import Launcher
from accelsweep.executor.preflight import check_disk_space, check_temporary_folder, disk_error_message
from accelsweep.executor.prepare_data import prepare
from accelsweep.executor.quiet_wait import ASSUME_QUIET_VARIABLE
from accelsweep.executor.result_reuse import CurrentConditions, needs_planning
from accelsweep.executor.sampler import Sampler
from accelsweep.files import remove, sha256_file
from accelsweep.ipc import Interrupted, Signals
from accelsweep.records.file_lock import driver_started_at
from accelsweep.records.file_times import clamp_future_times
from accelsweep.records.layout import SweepFolder, planned_sweep
from accelsweep.records.not_run_reasons import Halt, StopReason
from accelsweep.records.plan import Block, Done, Manifest
from accelsweep.records.run_record import steps_damage
from accelsweep.redaction import masked
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.significant_digits import escaped

_MAX_EXECUTOR_DEATHS = 2

MAX_VAIN_REPEATS = 5
"""After this many repeats in a row that were disturbed again, a block repeats no more: the machine is never quiet."""

_RUN_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def say(line: str) -> None:
    """Print one line of progress, prefixed with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {escaped(masked(line))}", flush=True)  # noqa: T201 - this is the block's log


def _read_plan(block_file: Path) -> tuple[Block, Manifest]:
    """Return the block in `sweeps/NAME/blocks/B.json` and the sweep's manifest.

    Raises DamagedFile, with the remedy, for a damaged file, and InputError if the path is not that of a planned block.
    """
    folder = SweepFolder.of_block(block_file)
    path = folder.block(block_file.stem)
    try:
        block, manifest = Block.read(path), Manifest.read(folder.manifest)
    except DamagedFile as error:
        raise needs_planning(error) from None
    if block.name != path.stem or not all(_RUN_NAME.fullmatch(run.name) for run in block.runs):
        raise needs_planning(DamagedFile(path, f"it contains block {block.name!r}"))
    if os.environ.get(ASSUME_QUIET_VARIABLE):
        limits = manifest.options.limits.model_copy(update={"disturbed_retries": 0, "quiet_wait_seconds": 0.0})
        manifest = manifest.model_copy(update={"options": manifest.options.model_copy(update={"limits": limits})})
    if all(planned.name != block.name for planned in manifest.blocks):
        raise InputError(
            f"{block_file}: revision {manifest.revision} of the plan does not contain this block; plan the sweep again"
        )
    return block, manifest


def execute_block(block_file: Path, launcher: Launcher, *, cancel_old: bool) -> int:
    """Produce a record for every wanted run of a block, then write the block's done file; return the exit code.

    The exit code is 0 on success, 1 if the sweep's stop file or limits.block_seconds ended the block early, and 128 + N
    after signal N. Finished runs are kept. If the block ends early, a stop reason is written next to its file
    (`records.not_run_reasons`).
    """
    folder, signals = SweepFolder.of_block(block_file), Signals()
    with _errors_as_stop_reasons(folder, block_file.stem):
        block, manifest = _read_plan(block_file)
        check_disk_space(folder.root, manifest.options.limits)
        check_temporary_folder()
        with signals.caught():
            try:
                with (
                    block_lock(folder, block.name, signals.pause, say, cancel_old=cancel_old) as lock,
                    Sampler() as sampler,
                ):
                    remove(folder.halt(block.name))
                    current = CurrentConditions(folder, since=driver_started_at(folder))
                    runner = AttemptRunner(folder, manifest, block, current, launcher, signals, sampler, lock, say)
                    why = _BlockExecutor(runner).measure_all()
            except Interrupted:
                why = _stopped(signals)
    if why is None:
        return EXIT_OK
    _write_stop_reason(folder, block.name, why)
    say(f"{why}; every finished run is kept")
    return EXIT_INCOMPLETE if signals.stop is None else 128 + signals.stop


@contextlib.contextmanager
def _errors_as_stop_reasons(folder: SweepFolder, block: str) -> Iterator[None]:
    """Write a stop reason for any error in the with-block and re-raise it; disk errors become AccelsweepErrors."""
    try:
        yield
    except Exception as error:
        disk = disk_error_message(error, folder.root) if isinstance(error, OSError) else None
        why = str(error) if isinstance(error, AccelsweepError) else disk
        if why is None:
            message = " ".join(f"{type(error).__name__}: {error}".split())
            why = StopReason.failed.format(error=message, log=folder.log(block).relative_to(folder.home))
        _write_stop_reason(folder, block, why)
        if disk is not None:
            raise AccelsweepError(disk) from None
        raise


def _write_stop_reason(folder: SweepFolder, block: str, why: str) -> None:
    try:
        Halt(block=block, reason=masked(why)).write(folder.halt(block))
    except OSError as error:
        say(f"this reason could not be saved for `status` and the report: {error}")


def _stopped(signals: Signals) -> str:
    assert signals.stop is not None, "nothing else interrupts a run or a wait"
    return StopReason.stopped.format(signal=signals.stop.name)


class _BlockExecutor:
    """Measures the wanted runs of a block, in the block's order."""

    def __init__(self, runner: AttemptRunner) -> None:
        self._runner = runner
        self._folder, self._block, self._say = runner.folder, runner.block.name, runner.say
        self._limits = runner.manifest.options.limits
        (planned,) = (planned for planned in runner.manifest.blocks if planned.name == self._block)
        wanted = [run for run in runner.block.runs if run.name in planned.runs]
        decided = decide_early(self._folder, runner.manifest, self._block)
        self._wanted = [
            run for run in wanted if run.setting not in decided or runner.run_folder(run).record() is not None
        ]
        for setting in dict.fromkeys(run.setting for run in wanted if run not in self._wanted):
            self._say(f"{setting}: left out: {decided[setting].reason}")
        self._attempts_made = 0
        self._disturbed: set[str] = set()
        self._vain_repeats = 0

    def measure_all(self) -> str | None:
        """Measure the runs without a reusable record; return why measuring ended early, or None if it did not."""
        pending = sorted((run for run in self._wanted if not self._is_reusable(run)), key=self._risk)
        self._say(f"block {self._block}: {len(self._wanted)} runs wanted, {len(pending)} to measure")
        if pending:
            linux.adopt_orphans()
            self._attempts_made = sum(self._runner.run_folder(run).latest() for run in self._wanted)
            try:
                why = self._measure_in_order(deque(pending))
            finally:
                for run in self._wanted:
                    if run.name in self._disturbed:  # what is still disturbed stands
                        self._runner.run_folder(run).promote_latest()
            if why is not None:
                return why
        self._write_done()
        return None

    def _measure_in_order(self, queue: deque[Run]) -> str | None:
        """Measure the runs in `queue`, and then those whose windows were disturbed; return why this ended early."""
        started = time.monotonic()  # only now, so that one run is measured however short the limit is
        while queue:
            if (why := self._why_stop(started)) is not None:
                return None if all(run.name in self._disturbed for run in queue) else why
            run = queue.popleft()
            is_repeat = run.name in self._disturbed
            if is_repeat and self._vain_repeats >= MAX_VAIN_REPEATS:
                continue
            if self._runner.signals.stop is not None or (conclusion := self._measure(run)) is None:
                return _stopped(self._runner.signals)
            if is_repeat:
                self._vain_repeats = self._vain_repeats + 1 if conclusion.disturbance else 0
            self._disturbed.discard(run.name)
            if conclusion.disturbance is not None:
                self._disturbed.add(run.name)
                if self._may_repeat(run):
                    self._say(f"{run.name}: measuring it again at the end of the block (limits.disturbed_retries)")
                    queue.append(run)
        return None

    def _may_repeat(self, run: Run) -> bool:
        """Return whether `run` is measured again after the disturbed attempts that have been made."""
        if self._runner.block.configs[run.setting].measure.shared:
            return False  # other runs of the sweep are expected to disturb it
        return self._runner.run_folder(run).disturbed_attempts() <= self._limits.disturbed_retries

    def _risk(self, run: Run) -> tuple[int, bool]:
        """Return a pending run's sort key: new runs come first, then failed ones, then those that killed an executor.

        A run that kills its executor must not keep the others from being measured.
        """
        run_folder = self._runner.run_folder(run)
        return len(run_folder.fatal_attempts()), run_folder.record() is not None

    def _why_stop(self, started: float) -> str | None:
        folder, limit = self._folder, self._limits.block_seconds
        if folder.stop.exists():
            return StopReason.budget_spent.format(stop=folder.stop.relative_to(folder.home))
        if limit is not None and time.monotonic() - started >= limit:
            return StopReason.block_spent.format(seconds=limit)
        return None

    def _is_reusable(self, run: Run) -> bool:
        self._runner.lock.heartbeat()
        run_folder = self._runner.run_folder(run)
        for damaged in run_folder.recover():
            self._say(f"{run.name}: {damaged}; measuring it again")
        record = run_folder.record()
        if record is None:
            return False
        damage = steps_damage(record, self._folder.steps(run.name))
        why = str(damage) if damage is not None else self._runner.current.why_rerun(record)
        if why is None and record.disturbance is not None and self._may_repeat(run):
            why = f"disturbed: {record.disturbance}"
        if why is not None:
            self._say(f"{run.name}: measuring it again: {why}")
        return why is None

    def _measure(self, run: Run) -> Conclusion | None:
        """Attempt `run` until its conclusion is final, or disturbed; return None if it was interrupted."""
        if (conclusion := self._killed_executors(run)) is not None:
            return self._runner.record_without_launch(run, self._next_position(), conclusion)
        for retries_left in reversed(range(self._limits.retries + 1)):
            conclusion = self._runner.attempt(run, self._next_position())
            if conclusion is None or not conclusion.retryable or retries_left == 0:
                break
            if self._runner.signals.stop is not None:
                break
            self._say(f"{run.name}: retrying (limits.retries)")
        return conclusion

    def _next_position(self) -> int:
        self._attempts_made += 1
        return self._attempts_made - 1

    def _killed_executors(self, run: Run) -> Conclusion | None:
        """Return the conclusion on a run that has killed too many executors to be started again; else None."""
        run_folder = self._runner.run_folder(run)
        attempts = run_folder.fatal_attempts()
        memory = memory_failure([run_folder.job_log(number) for number in attempts])
        if memory is not None:
            reason = f"{memory.scheduler} ended its job because it ran out of memory: {memory.text} ({memory.key})"
            return Conclusion(Outcome.out_of_memory, reason)
        if len(attempts) >= _MAX_EXECUTOR_DEATHS:
            numbers = ", ".join(map(str, attempts))
            reason = f"its executor died {len(attempts)} times while it ran (attempts {numbers})"
            return Conclusion(Outcome.crashed, reason)
        return None

    def _write_done(self) -> None:
        records = {run.name: sha256_file(self._folder.record(run.name)) for run in self._wanted}
        Done(block=self._block, records=records).write(self._folder.done(self._block))
        block_file = self._folder.block(self._block)
        clamp_future_times([block_file], self._folder.root)  # otherwise Snakemake would delete the older done file


def main(launcher: Launcher | None = None) -> int:
    """Run the command line of an executor; return the exit code. `launcher` overrides how ranks are started."""
    parser = parser_for("executor", "Execute one block, or prepare the data of a sweep.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("block_file", type=Path, nargs="?", help="sweeps/NAME/blocks/BLOCK.json")
    what.add_argument("--prepare", type=Path, metavar="sweeps/NAME", help="prepare the data of a sweep instead")
    parser.add_argument("--cancel-old", action="store_true", help="end an executor already working on this block")
    arguments = parser.parse_args()
    if arguments.prepare:
        return exit_code_of(
            lambda: print(f"{len(prepare(planned_sweep(arguments.prepare)))} data modules are ready")  # noqa: T201 - the result
        )
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"# {when}, process {os.getpid()} on {socket.gethostname()}", flush=True)  # noqa: T201 - the log also contains the output of earlier commands
    launcher = launcher or Launcher()
    return exit_code_of(
        lambda: execute_block(arguments.block_file, launcher, cancel_old=arguments.cancel_old), report=say
    )
