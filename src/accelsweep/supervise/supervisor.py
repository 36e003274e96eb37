"""One block from beginning to end: skip runs that stand, measure the rest in order, write the file for Snakemake."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.documents import remove, sha256_file
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, DamagedFile, InputError
from accelsweep.core.planned.plans import Block, Done, Manifest, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import steps_damage
from accelsweep.machine import linux
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Why
from accelsweep.state.holding import Holder
from accelsweep.state.living import command_began
from accelsweep.state.stamps import bring_back
from accelsweep.supervise.block_hold import held
from accelsweep.supervise.ends.disk import check_room, check_temporary_folder
from accelsweep.supervise.ends.halting import halting, leave_halt
from accelsweep.supervise.ends.job_end import lack_of_memory
from accelsweep.supervise.ends.outcomes import Conclusion
from accelsweep.supervise.processes.launchers import Launchers
from accelsweep.supervise.running import Runner
from accelsweep.supervise.signals import Interrupted, Signals
from accelsweep.supervise.standing.skips import Present

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
    Finished runs are kept. Whatever the reason for an early end is, a halt tells it (`state.halts`).
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
