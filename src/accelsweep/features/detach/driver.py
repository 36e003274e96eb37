"""The detached driver: `python -m accelsweep.features.detach.driver sweeps/NAME` runs a stored command.

Slurm signals the driver's job some minutes before its time limit. The driver then leaves the sweep's jobs running and
submits a successor job, which continues with the same stored command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import Field

from accelsweep.cli.typer_app import exit_code
from accelsweep.config.site import Site
from accelsweep.driver.auto_batch_size import announce_searches, plan_or_searches
from accelsweep.driver.console import say
from accelsweep.driver.job_queue import cancel_jobs, list_jobs
from accelsweep.driver.plan_preview import requested_plan
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import (
    Listeners,
    check_and_show_plan,
    check_request,
    run_sweep,
)
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, DamagedFile
from accelsweep.features.detach.backends import (
    DriverExit,
    SlurmBackend,
    Submission,
    driver_name,
    exclusive_job_options,
)
from accelsweep.json_documents import Document
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import now
from accelsweep.schedulers.slurm import SlurmScheduler
from accelsweep.signals import DriverEvicted, ignore_eviction, interrupt_on_termination, raise_on_eviction
from accelsweep.significant_digits import count_of

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan

MAX_STARTS = 100
"""The maximum number of drivers in a chain, regardless of progress."""

_LOCK_TIMEOUT_SECONDS = 150.0

_POLL_SECONDS = 2.0

_SLURM_ANSWER_SHARE = 0.5
"""Share of the time before the limit during which queries to Slurm are retried if it does not answer."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class PreparedCommand:
    """A command checked and planned in the terminal: its request, site, and the sweep that contains the driver's files.

    `plan` is the first plan to measure, or None for `claims`, whose driver plans each sweep itself.
    """

    request: Request
    site: Site
    sweep: str
    plan: Plan | None = None

    @classmethod
    def of(cls, home: Path, request: Request) -> PreparedCommand:
        """Check, plan and show the command, so that the terminal reports errors. Raises InputError."""
        check_request(request)
        Listeners(request)
        if request.extension:
            request = request.extension.resolved(home, request)
            if request.extension and (folder := request.extension.folder):
                return cls(request, Site(name="local"), folder)
        plan = plan_or_searches(home, partial(requested_plan, home, request))
        if isinstance(plan, tuple):
            unsearched, plan = plan
            announce_searches(unsearched, plan)
            sweep = unsearched.sweep
        else:
            sweep = plan.manifest.sweep
        check_and_show_plan(home, request, plan, request.budget_seconds)
        if request.extension:
            request = replace(request, extension=request.extension.pinned(plan))
        return cls(request, plan.manifest.site, sweep, plan)

    @property
    def sweep_plan(self) -> Plan | None:
        """The plan of the sweep itself; None for claims, or if batch-size searches come first."""
        return self.plan if self.plan is not None and self.plan.manifest.sweep == self.sweep else None

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The names of the planned sweeps, starting with the one that contains the driver's files."""
        return tuple({self.sweep: None, self.plan.manifest.sweep: None}) if self.plan else ()


def run_command(home: Path, request: Request) -> int:
    """Run the command as in a terminal; return its exit code."""
    return request.extension.run(home, request) if request.extension else run_sweep(home, request).code


class DriverSpec(Document):
    """The stored command of a detached driver, readable only by its owner.

    `site` is where the sweep's jobs run and, on Slurm, where the driver runs too. `sweeps` lists the names of the
    sweeps that it drives. `revision` is the plan revision that already contains the repeats of `--add-repeats`.
    `starts` is the number of drivers started so far. `secrets` are environment variables that must not be passed
    through Slurm, which would store and display them.
    """

    kind: ClassVar[str] = "order"
    mode: ClassVar[int] = 0o600

    request: Request
    site: Site
    sweeps: tuple[str, ...]
    revision: int
    starts: int = 0
    secrets: dict[str, str] = Field(default_factory=dict)

    def folders(self, home: Path) -> list[SweepFolder]:
        """Return the folders of the driver's sweeps."""
        return [SweepFolder(home, sweep) for sweep in self.sweeps]

    def for_next_start(self, folder: SweepFolder) -> DriverSpec:
        """Return the next driver's spec; repeats already in the plan are not added again."""
        request = self.request
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            if Manifest.read(folder.manifest).revision >= self.revision:
                request = replace(request, add_repeats=0)
        return self.model_copy(update={"request": request, "starts": self.starts + 1})

    def with_remaining_budget(self, started: float) -> DriverSpec:
        """Return the spec with the time budget reduced by the time since `started`, on the monotonic clock."""
        budget = self.request.budget_seconds
        if budget is None:
            return self
        left = max(1.0, budget - (time.monotonic() - started))
        return self.model_copy(update={"request": replace(self.request, time_budget=f"{left:.0f}s")})


def driver_command(folder: SweepFolder) -> tuple[str, ...]:
    """Return the command line of this sweep's detached driver."""
    return (sys.executable, "-P", "-m", "accelsweep.features.detach.driver", str(folder.root))


def run_driver(folder: SweepFolder) -> int:
    """Run the stored command of this sweep; return the exit code."""
    spec, started = DriverSpec.read(folder.driver_file("order")).for_next_start(folder), time.monotonic()
    spec.write(folder.driver_file("order"))
    os.environ.update(spec.secrets)
    if spec.site.scheduler == "slurm":
        raise_on_eviction(lambda: SlurmBackend().is_cancelled(os.environ.get("SLURM_JOB_ID", "")))
    before = _record_times(folder, spec)
    code, continues = EXIT_INCOMPLETE, False
    try:
        code = exit_code(lambda: _run_stored(folder, spec))
        ignore_eviction()
        if code == EXIT_INTERRUPTED and spec.starts > 1:
            # An interrupted driver cancels its own jobs, but not those of earlier drivers.
            for sweep_folder in spec.folders(folder.home):
                cancel_jobs(sweep_folder, SlurmScheduler(spec.site), say)
    except DriverEvicted as eviction:
        if eviction.resubmit:
            progressed = _record_times(folder, spec) != before
            successor = spec.with_remaining_budget(started)
            continues = exit_code(lambda: _submit_successor(folder, successor, progressed=progressed)) == EXIT_OK
        else:  # preempted: Slurm may requeue this job, which then needs the spec
            say("the driver's job is being stopped; other jobs keep running, and the same command resumes the sweep")
            continues = True
    finally:
        if not continues:
            DriverExit(code=code).write(folder.driver_file("ended"))
            folder.driver_file("order").unlink(missing_ok=True)
    return EXIT_OK if continues else code


def _run_stored(folder: SweepFolder, spec: DriverSpec) -> int:
    # The previous driver may have been killed on another node; its lock expires soon.
    deadline = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    while spec.starts > 1 and live_lock(folder.driver_file("lock")) is not None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return run_command(folder.home, spec.request)


def _submit_successor(folder: SweepFolder, spec: DriverSpec, *, progressed: bool) -> int:
    """Submit the next driver's job, which starts when this one has ended.

    Raises AccelsweepError if the chain ends here or Slurm does not answer in time. A notification is sent in either
    case.
    """
    folders = spec.folders(folder.home)
    plans = [Manifest.read(sweep_folder.manifest) for sweep_folder in folders if sweep_folder.manifest.is_file()]
    blocks = [block.resources for plan in plans for block in plan.blocks]
    scheduler = SlurmScheduler(spec.site)
    backend = SlurmBackend(spec.site.slurm, spec.request.nodes, exclusive_job_options(spec.site, blocks))
    name = driver_name(backend, folder)
    deadline = time.monotonic() + _SLURM_ANSWER_SHARE * backend.signal_seconds
    with Listeners(spec.request, folder).report_failure():
        jobs = _retry(lambda: [job for sweep_folder in folders for job in list_jobs(sweep_folder, scheduler)], deadline)
        can_start = _retry(
            lambda: [job for job in jobs if not (scheduler.waits(job) and scheduler.never_starts(job.reason))], deadline
        )
        if why := why_chain_ends(spec.starts, progressed=progressed, startable_jobs=len(can_start)):
            advice = [] if can_start else [text for job in jobs if (text := scheduler.advice(job.reason)) is not None]
            remedy = advice[0] if advice else "The same command resumes the sweep"
            raise AccelsweepError(f"the driver reached its time limit, and {why}. {remedy}")
        with contextlib.suppress(AccelsweepError):  # only finds nodes to avoid; `start` reports a rejection
            backend.check(folder, name)
        spec.write(folder.driver_file("order"))
        after = os.environ.get("SLURM_JOB_ID")
        job = _retry(lambda: backend.start(folder, driver_command(folder), name, after=after), deadline)
    Submission(place="slurm", name=job, host=socket.gethostname(), since=now()).write(folder.driver_file("handed"))
    say(f"the driver reached its time limit: job {job} takes over, with {count_of(len(jobs), 'job')} of the sweep")
    return EXIT_OK


def _retry(query: Callable[[], _Answer], deadline: float) -> _Answer:
    """Return Slurm's answer, retrying after errors until the deadline on the monotonic clock."""
    while True:
        try:
            return query()
        except AccelsweepError as error:
            if time.monotonic() >= deadline:
                raise
            say(f"{error}; asking again")
        time.sleep(_POLL_SECONDS)


def why_chain_ends(starts: int, *, progressed: bool, startable_jobs: int) -> str | None:
    """Return why a driver that reaches its time limit gets no successor; None if it does."""
    if starts >= MAX_STARTS:
        return f"it was number {starts}, the last one allowed: no successor is submitted"
    if not progressed and not startable_jobs:
        return "no run ended while it was active, and none of the remaining jobs can start: no successor is submitted"
    return None


def _record_times(folder: SweepFolder, spec: DriverSpec) -> Sequence[tuple[str, int]]:
    """Return the modification times of all records, which change when a run ends."""
    records = (path for sweep_folder in spec.folders(folder.home) for path in sweep_folder.latest_records())
    return [(str(path), path.stat().st_mtime_ns) for path in records]


def main() -> None:
    """Run the stored command of the sweep folder given on the command line."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # regardless of what the parent process has set
    interrupt_on_termination()
    root = sweep_parser("features.detach.driver", "Run the stored command of a detached driver.").parse_args().sweep
    sys.exit(exit_code(lambda: run_driver(SweepFolder.of(root))))


if __name__ == "__main__":
    main()
