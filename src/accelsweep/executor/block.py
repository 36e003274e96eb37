"""One block from beginning to end: skip runs that stand, measure the rest in order, write the file for Snakemake."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.devices import linux
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, DamagedFile, InputError
from accelsweep.executor.attempt import Runner
from accelsweep.executor.block_lock import held
from accelsweep.executor.ipc import Interrupted, Signals
from accelsweep.executor.launch import Launchers
from accelsweep.executor.outcome import Conclusion, check_room, check_temporary_folder, lack_of_memory, refusal
from accelsweep.executor.prepare_data import prepare
from accelsweep.executor.result_reuse import Present
from accelsweep.json_documents import remove, sha256_file
from accelsweep.records.file_lock import Holder, command_began
from accelsweep.records.file_times import bring_back
from accelsweep.records.layout import SweepFolder, planned_sweep
from accelsweep.records.plan import Block, Done, Manifest, Run
from accelsweep.records.run_files import RunFolder
from accelsweep.records.run_record import Outcome, steps_damage
from accelsweep.records.stop_reasons import Halt, Why
from accelsweep.redaction import masked
from accelsweep.signals import answer, parser_for
from accelsweep.significant_digits import escaped

# Whatever ends a supervisor before its runs are measured is kept beside its block, for `records.stop_reasons` to tell.


@contextlib.contextmanager
def halting(folder: SweepFolder, block: str, say: Callable[[str], None]) -> Iterator[None]:
    """Leave a halt for any error that ends the with-block, and raise it.

    Raises AccelsweepError for an OSError by which the disk refused.
    """
    try:
        yield
    except AccelsweepError as error:
        leave_halt(folder, block, str(error), say)
        raise
    except OSError as error:
        message = refusal(error, folder.root)
        leave_halt(folder, block, message or _failed(folder, block, error), say)
        if message is None:
            raise
        raise AccelsweepError(message) from None
    except Exception as error:
        leave_halt(folder, block, _failed(folder, block, error), say)
        raise


def _failed(folder: SweepFolder, block: str, error: Exception) -> str:
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return Why.failed.format(error=words, log=folder.log(block).relative_to(folder.home))


def leave_halt(folder: SweepFolder, block: str, why: str, say: Callable[[str], None]) -> None:
    """Keep `why` the supervisor of a block ends early; say so where even that cannot be written."""
    try:
        Halt(block=block, why=masked(why)).write(folder.halt(block))
    except OSError as error:
        say(f"this could not be kept for `status` and the report: {error}")


_MOST_FALLS = 2

_FOLDER_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


@dataclass(frozen=True)
class Assignment:
    """A block, its plan, and those of its runs that the plan wants, in the order of the block."""

    folder: SweepFolder
    block: Block
    manifest: Manifest
    wanted: tuple[Run, ...]


def read_assignment(block_file: Path) -> Assignment:
    """Return the assignment in `sweeps/NAME/blocks/B.json` and the manifest beside it.

    Raises DamagedFile for a damaged file, with the remedy; InputError if the path is not a block's.
    """
    folder = SweepFolder.of_block(block_file)
    path = folder.block(block_file.stem)
    try:
        block, manifest = Block.read(path), Manifest.read(folder.manifest)
    except DamagedFile as error:
        raise DamagedFile(error.path, f"{error.why}; the same `accelsweep run` writes it anew") from None
    if block.name != path.stem or not all(_FOLDER_NAME.fullmatch(run.name) for run in block.runs):
        raise DamagedFile(
            path, f"its contents are those of block {block.name!r}; the same `accelsweep run` writes it anew"
        )
    planned = {entry.name: entry.runs for entry in manifest.blocks}
    if block.name not in planned:
        raise InputError(
            f"{block_file}: revision {manifest.revision} of the plan has no such block; plan the sweep again"
        )
    wanted = tuple(run for run in block.runs if run.name in planned[block.name])
    return Assignment(folder, block, manifest, wanted)


def supervise(
    block_file: Path, *, say: Callable[[str], None], launchers: Launchers | None = None, cancel_old: bool = False
) -> int:
    """Give every wanted run of a block a record and write the block's done file; return the exit code.

    0 when that is done, 1 when the sweep's stop file or limits.block_seconds ended it early, 128 + N after signal N.
    Finished runs are kept. Whatever the reason for an early end is, a halt tells it (`records.stop_reasons`).
    """
    folder, signals = SweepFolder.of_block(block_file), Signals()
    with halting(folder, block_file.stem, say):
        job = read_assignment(block_file)
        check_room(folder.root, job.manifest.settings.limits)
        check_temporary_folder()
        with signals.caught():
            why = _measure(job, signals, say, launchers or Launchers(), cancel_old=cancel_old)
    if why is None:
        return EXIT_OK
    leave_halt(folder, job.block.name, why, say)
    say(f"{why}; every finished run is kept")
    return EXIT_INCOMPLETE if signals.stop is None else 128 + signals.stop


def _measure(
    job: Assignment, signals: Signals, say: Callable[[str], None], launchers: Launchers, *, cancel_old: bool
) -> str | None:
    """Measure the block while holding it; return None, or why not each of its runs has a record."""
    try:
        with held(job.folder, job.block.name, signals.pause, say, cancel_old=cancel_old) as hold:
            remove(job.folder.halt(job.block.name))
            return _Supervisor(job, signals, hold, say, launchers).measure_all()
    except Interrupted:
        return _stopped(signals)


def _fallen(place: RunFolder) -> Conclusion | None:
    """Return the conclusion on a run that took its supervisor down and is not started again; None if it may be."""
    falls = place.took_down()
    memory = lack_of_memory([place.job_log(number) for number in falls])
    if memory is not None:
        return Conclusion(
            Outcome.out_of_memory, f"{memory.engine} ended its job for lack of memory: {memory.text} ({memory.key})"
        )
    if len(falls) >= _MOST_FALLS:
        listed = ", ".join(map(str, falls))
        return Conclusion(Outcome.crashed, f"its supervisor died {len(falls)} times while it ran (attempts {listed})")
    return None


def _stopped(signals: Signals) -> str:
    assert signals.stop is not None, "nothing else interrupts a run or a wait"
    return Why.stopped.format(signal=signals.stop.name)


class _Supervisor:
    def __init__(
        self, job: Assignment, signals: Signals, hold: Holder, say: Callable[[str], None], launchers: Launchers
    ) -> None:
        self._job = job
        self._signals = signals
        self._hold = hold
        self._say = say
        self._launchers = launchers
        self._present = Present(job.folder.home, job.folder.name, since=command_began(job.folder))
        self._began = 0.0

    def measure_all(self) -> str | None:
        """Measure what does not stand; return None when every wanted run has a record, else why not."""
        pending = sorted((run for run in self._job.wanted if not self._stands(run)), key=self._risk)
        self._say(f"block {self._job.block.name}: {len(self._job.wanted)} runs wanted, {len(pending)} to measure")
        if pending:
            linux.adopt_orphans()
            runner = self._runner()
            self._began = time.monotonic()  # so that however short the limit, one run is measured
            for run in pending:
                if (why := self._why_stop()) is not None:
                    return why
                if self._signals.stop is not None or not self._settle(runner, run):
                    return _stopped(self._signals)
        self._write_done()
        return None

    def _risk(self, run: Run) -> tuple[int, bool]:
        """Return the sort key of a pending run: a run that took a supervisor down must not keep others from their turn.

        New runs come first, then those that ended without an answer before, and last those that ended a supervisor.
        """
        place = RunFolder(self._job.folder.run(run.name), run.name)
        return len(place.took_down()), place.record() is not None

    def _why_stop(self) -> str | None:
        folder = self._job.folder
        if folder.stop.exists():
            return Why.budget_spent.format(stop=folder.stop.relative_to(folder.home))
        limit = self._job.manifest.settings.limits.block_seconds
        if limit is not None and time.monotonic() - self._began >= limit:
            return Why.block_spent.format(seconds=limit)
        return None

    def _runner(self) -> Runner:
        job = self._job
        return Runner(
            folder=job.folder,
            block=job.block,
            limits=job.manifest.settings.limits,
            site=job.manifest.site,
            present=self._present,
            launchers=self._launchers,
            signals=self._signals,
            hold=self._hold,
            say=self._say,
        )

    def _stands(self, run: Run) -> bool:
        self._hold.beat()
        place = RunFolder(self._job.folder.run(run.name), run.name)
        for damaged in place.recover():
            self._say(f"{run.name}: {damaged}; it is measured again")
        record = place.record()
        if record is None:
            return False
        damage = steps_damage(record, self._job.folder.steps(run.name))
        why = str(damage) if damage is not None else self._present.why_again(record)
        if why is not None:
            self._say(f"{run.name}: measured again, because {why}")
        return why is None

    def _settle(self, runner: Runner, run: Run) -> bool:
        """Attempt `run` until its conclusion is final; return False if it was interrupted."""
        fallen = _fallen(RunFolder(self._job.folder.run(run.name), run.name))
        if fallen is not None:
            runner.without_launch(run, fallen)
            return True
        for retries_left in reversed(range(self._job.manifest.settings.limits.retries + 1)):
            conclusion = runner.attempt(run)
            if conclusion is None:
                return False
            if not conclusion.again or retries_left == 0 or self._signals.stop is not None:
                break
            self._say(f"{run.name}: tried again (limits.retries)")
        return True

    def _write_done(self) -> None:
        job = self._job
        records = {run.name: sha256_file(job.folder.record(run.name)) for run in job.wanted}
        Done(block=job.block.name, records=records).write(job.folder.done(job.block.name))
        bring_back([job.folder.block(job.block.name)], job.folder.root)  # else Snakemake drops the done file as too old


# The command line of a supervisor, in a process of its own or in one that the fork server forked.


def say(line: str) -> None:
    """Print one line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {escaped(masked(line))}", flush=True)  # noqa: T201 - this is the block's log


def _head_line() -> None:
    """Begin this command's part of the log, which holds those of earlier commands too."""
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"# {when}, process {os.getpid()} on {socket.gethostname()}", flush=True)  # noqa: T201 - this is the block's log


def _prepare(root: Path) -> None:
    del sys.argv[1:]  # a module that reads them as it is imported would take ours for the user's
    os.environ.pop("PYTHONSAFEPATH", None)  # it was for Snakemake, and not for what the user's code starts
    print(f"{len(prepare(planned_sweep(root)))} data modules are ready")  # noqa: T201 - the answer


def main(launchers: Launchers | None = None) -> int:
    """Read the command line, do what it says, return the exit code. `launchers` replaces how ranks are started."""
    parser = parser_for("executor", "Supervise one block, or prepare the data of a sweep.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("block_file", type=Path, nargs="?", help="sweeps/NAME/blocks/BLOCK.json")
    what.add_argument("--prepare", type=Path, metavar="sweeps/NAME", help="prepare the data of a sweep instead")
    parser.add_argument("--cancel-old", action="store_true", help="end a supervisor that works on this block already")
    arguments = parser.parse_args()
    if arguments.prepare:
        return answer(lambda: _prepare(arguments.prepare))
    _head_line()
    return answer(
        lambda: supervise(arguments.block_file, say=say, launchers=launchers, cancel_old=arguments.cancel_old), tell=say
    )
