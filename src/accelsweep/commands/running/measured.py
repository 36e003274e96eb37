"""A planned sweep measured by its head: the plan is written, and Snakemake driven through it and what it grows by."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import EXIT_INTERRUPTED, EXIT_OK, AccelsweepError
from accelsweep.commands.further.looks import plan_after_look
from accelsweep.commands.further.pilot import plan_after_pilot
from accelsweep.commands.planning.shown import show_plan
from accelsweep.commands.running.request import Request
from accelsweep.drive.children.fork_server import fork_server
from accelsweep.drive.children.temporary import own_temporary_folder
from accelsweep.drive.following.notices import Notices
from accelsweep.drive.following.progress import SweepProgress
from accelsweep.drive.head import held
from accelsweep.drive.jobs.queue import Queue
from accelsweep.drive.jobs.settle import settle_old_jobs
from accelsweep.drive.ready import make_ready
from accelsweep.drive.snakemake.driving import Driving
from accelsweep.drive.standing import forget_altered_report, note_standing, stands
from accelsweep.drive.terminal.console import say, warn
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from accelsweep.plan.make import Plan


def measured(folder: SweepFolder, request: Request, plan: Plan, budget_seconds: float | None, notices: Notices) -> int:
    """Run Snakemake until every planned run was tried; return its exit code."""
    from accelsweep.plan.make import write_plan

    home, site = folder.home, plan.manifest.site
    with held(folder, cancel_old=request.cancel_old) as head, own_temporary_folder(folder, site) as temporary:
        if temporary is not None and temporary.parent != Path(tempfile.gettempdir()):
            say(f"TMPDIR is too long for sockets: temporary files go to {temporary}")
        deadline = None if budget_seconds is None else time.monotonic() + budget_seconds

        def watch(progress: SweepProgress) -> None:
            head.beat()
            notices.look(progress)

        queue = Queue(folder, engine_of(site), say, plan.manifest.settings.limits.queue_minutes)
        driving = Driving(
            folder,
            queue,
            request.profile,
            request.jobs,
            request.tracking_uri,
            deadline,
            watch,
            temporary,
            request.keep_going,
        )
        _settle(queue, watch, head.beat, cancel=request.cancel_old, deadline=deadline)
        write_plan(home, plan)  # only now: the plan of a sweep that is being run belongs to its head
        make_ready(folder, warn)
        forget_altered_report(folder)
        whole = stands(folder, request.tracking_uri)
        with contextlib.nullcontext() if whole else fork_server(home, folder.fork_server_log, [plan]):
            code = EXIT_OK if whole else driving.drive(plan)
            while not driving.ended_early and (further := _further(folder, request, plan, code, deadline)):
                plan = further
                show_plan(home, plan)
                write_plan(home, plan)
                code = driving.drive(plan)
    if code == EXIT_OK:
        note_standing(folder)
    return code


def _settle(
    queue: Queue,
    watch: Callable[[SweepProgress], None],
    beat: Callable[[], None],
    *,
    cancel: bool,
    deadline: float | None,
) -> None:
    """Wait for the jobs of an earlier head, or cancel them, and show the progress of its plan meanwhile."""

    @cache
    def earlier() -> SweepProgress | None:
        with contextlib.suppress(OSError, AccelsweepError):  # no plan of ours
            return SweepProgress.begin(queue.folder)
        return None

    def look() -> None:
        beat()
        if (progress := earlier()) is not None:
            progress.update()
            watch(progress)

    settle_old_jobs(queue, cancel=cancel, watch=look, deadline=deadline)


def _further(folder: SweepFolder, request: Request, plan: Plan, code: int, deadline: float | None) -> Plan | None:
    """Return the plan with the blocks that `repeats: auto` adds; None after an interruption or a spent budget."""
    if code == EXIT_INTERRUPTED or folder.stop.exists():
        return None
    left = None if deadline is None else deadline - time.monotonic()
    after = plan_after_look if request.until_decided else plan_after_pilot
    return after(folder.home, plan, request.overrides, request.name, left)
