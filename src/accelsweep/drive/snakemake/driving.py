"""Snakemake driven to its end: watched, with a publisher beside it, and started anew where Slurm forgot its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED
from accelsweep.base.interrupts import HeadLeaves, JobCancelled
from accelsweep.base.secrets import masked
from accelsweep.core.planned.plans import Manifest, Run
from accelsweep.drive.children import publisher
from accelsweep.drive.children.processes import Child
from accelsweep.drive.following.progress import FirstFailures, SweepProgress
from accelsweep.drive.jobs.queue import Queue
from accelsweep.drive.snakemake.child import options_for, start_snakemake
from accelsweep.drive.terminal.console import say, warn
from accelsweep.state.folders import SweepFolder
from accelsweep.state.halts import Halt, Why
from accelsweep.state.living import living_hold

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan

_POLL_SECONDS = 0.5
_ENDS_SECONDS = 60.0
_NAMED = 2


@dataclass
class Driving:
    """The common part of one head's Snakemakes: they run one after the other, where a plan grows.

    Each has a `queue` of its own, made of the head's. `keep_going` measures on where all settings fail alike; else
    `ended_early` says why the rest was left. `watch` is called twice a second. No run begins after `deadline`,
    on the monotonic clock. `temporary` is the folder for Snakemake's temporary files, None for the usual one.
    """

    folder: SweepFolder
    queue: Queue
    profile: str
    jobs: int | None
    tracking_uri: str | None
    deadline: float | None
    watch: Callable[[SweepProgress], None]
    temporary: Path | None
    keep_going: bool = False
    ended_early: str | None = None
    _first: FirstFailures = field(init=False)
    _told: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._first = FirstFailures(self.folder)

    def drive(self, plan: Plan) -> int:
        """Run Snakemake until every run of the plan, which is written, was tried; return its exit code.

        A run that ends its supervisor without a word ends its block, too. So Snakemake is started again for the rest of
        the block, as long as that charges a run with another attempt: no run is started more than twice after that.
        Where the first settings all end alike, the rest is left (`ended_early` says why), unless `keep_going`.
        """
        options, known = options_for(plan, self.profile, self.jobs), self._fallen()
        queue = self.queue
        while True:
            queue = queue.anew()
            code = self._follow(options, queue)
            fallen = self._fallen() - known
            known |= fallen
            self._leave_if_all_fall(known)
            if self.ended_early and code != EXIT_INTERRUPTED:
                self._conclude_early(self.ended_early)
                return EXIT_INCOMPLETE
            if code <= 0 or code == EXIT_INTERRUPTED or self.folder.stop.exists() or not (queue.forgotten or fallen):
                return code
            for run in sorted(mark.parents[2].name for mark in fallen):
                say(f"{run} ended its supervisor without a word: the other runs of its block come first")

    def _fallen(self) -> set[Path]:
        """Return the marks of attempts whose supervisors ended without a word."""
        living = {hold.run for hold in map(living_hold, self.folder.holds()) if hold is not None}
        return {mark for mark in self.folder.open_attempts() if mark.parents[2].name not in living}

    def _leave_if_all_fall(self, marks: set[Path]) -> None:
        """Leave the rest where runs of two settings ended their supervisors, and no run was measured."""
        runs = sorted({mark.parents[2].name for mark in marks})
        if not self.keep_going and not self._first.measured and len({Run.parse(run).cell for run in runs}) > 1:
            self.ended_early = self.ended_early or Why.brought_down.format(runs=", ".join(runs[:_NAMED]))

    def _conclude_early(self, why: str) -> None:
        """Say beside each unfinished block why it was left, and write the report with what there is."""
        from accelsweep.drive.finish import finish

        warn(why)
        deadline = time.monotonic() + _ENDS_SECONDS
        while any(map(living_hold, self.folder.holds())) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)  # they leave a halt of their own
        for block in Manifest.read(self.folder.manifest).blocks:
            if not self.folder.done(block.name).exists():
                Halt(block=block.name, why=masked(why)).write(self.folder.halt(block.name))
        finish(self.folder)
        with publisher.follow(self.folder, self.tracking_uri) as following:
            publisher.finish(following, self.folder, self.tracking_uri)

    def _follow(self, options: Sequence[str], queue: Queue) -> int:
        """Run Snakemake and the publisher to their ends; Snakemake is ended where it waits for forgotten jobs."""
        progress, deadline = SweepProgress.begin(self.folder, self._first), self.deadline
        with (
            publisher.follow(self.folder, self.tracking_uri) as following,
            start_snakemake(self.folder, options, self.temporary) as snakemake,
        ):
            try:
                with progress.shown():
                    while snakemake.running():
                        progress.update()
                        self.watch(progress)
                        self._tell_of_mlflow(following)
                        queue.update()
                        if queue.forgotten:
                            say("Slurm has forgotten the jobs that Snakemake waits for (MinJobAge): starting it again")
                            snakemake.interrupt()
                        deadline = self._stop_at(deadline)
                        if self._first.alike and not self.keep_going and not self.ended_early:
                            self.ended_early = Why.alike.format(error=self._first.alike)
                            snakemake.kill()  # asked to end, it would write a report first, without our reason
                            queue.cancel_left()
                        time.sleep(_POLL_SECONDS)
                    progress.update()
                    self.watch(progress)
            except KeyboardInterrupt as asked:
                warn("\nstopping: ending the current run, keeping the finished ones ...")
                hurried = isinstance(asked, JobCancelled)  # there is no time for anybody to finish
                (snakemake.kill if hurried else snakemake.interrupt)()
                queue.cancel_left()
                (following.kill if hurried else following.finish)()
                return EXIT_INTERRUPTED
            except HeadLeaves:
                snakemake.kill()  # by Ctrl-C it would cancel its jobs, which another head waits for
                following.finish()
                raise
            publisher.finish(following, self.folder, self.tracking_uri)
        return snakemake.code

    def _tell_of_mlflow(self, following: Child) -> None:
        """Show what keeps the publisher from its work, once: it can be mended while the sweep is measured."""
        for line in publisher.complaints(following):
            if line not in self._told:
                self._told.add(line)
                warn(line)

    def _stop_at(self, deadline: float | None) -> float | None:
        if deadline is None or time.monotonic() < deadline:
            return deadline
        self.folder.stop.touch()
        say("the time budget is spent: no further run is started")
        return None
