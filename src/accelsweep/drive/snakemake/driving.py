"""Snakemake driven to its end: watched, with a publisher beside it, and started anew where Slurm forgot its jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_INTERRUPTED
from accelsweep.base.interrupts import HeadLeaves, JobCancelled
from accelsweep.drive.children import publisher
from accelsweep.drive.children.processes import Child
from accelsweep.drive.following.progress import SweepProgress
from accelsweep.drive.jobs.queue import Queue
from accelsweep.drive.snakemake.child import options_for, start_snakemake
from accelsweep.drive.terminal.console import say, warn
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan

_POLL_SECONDS = 0.5


@dataclass
class Driving:
    """The common part of one head's Snakemakes: they run one after the other, where a plan grows.

    Each has a `queue` of its own, made of the head's. `watch` is called twice a second. No run begins after `deadline`,
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
    _told: set[str] = field(default_factory=set)

    def drive(self, plan: Plan) -> int:
        """Run Snakemake until every run of the plan, which is written, was tried; return its exit code."""
        queue = self.queue.anew()
        options = options_for(plan, self.profile, self.jobs)
        code = self._follow(options, queue)
        return self._follow(options, queue.anew()) if queue.forgotten else code

    def _follow(self, options: Sequence[str], queue: Queue) -> int:
        """Run Snakemake and the publisher to their ends; Snakemake is ended where it waits for forgotten jobs."""
        progress, deadline = SweepProgress.begin(self.folder), self.deadline
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
