"""`--detach` plans in the terminal and starts the driver in the background; `accelsweep attach` follows its output."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from accelsweep.cli.options import SweepName
from accelsweep.config.site import Site
from accelsweep.driver.console import say
from accelsweep.driver.job_queue import JobQueue, wait_for_earlier_jobs
from accelsweep.driver.request import Request
from accelsweep.driver.sweep_lock import active_driver, lock_sweep
from accelsweep.errors import EXIT_INTERRUPTED, EXIT_OK, AccelsweepError, InputError
from accelsweep.features.detach.backends import (
    Backend,
    Submission,
    active_submission,
    backend_of,
    driver_exit_code,
    driver_log,
    driver_name,
    last_submission,
    select_backend,
    stop_hints,
)
from accelsweep.features.detach.driver import DriverSpec, PreparedCommand, driver_command
from accelsweep.files import open_regular, tail_lines
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import now
from accelsweep.schedulers.job_environment import secrets_in
from accelsweep.schedulers.select import scheduler_of

_START_TIMEOUT_SECONDS = 60.0

_START_POLL_SECONDS = 0.2

_LOG_POLL_SECONDS = 0.5

_STATE_POLL_SECONDS = 10.0

_MISSES = 3
"""Number of consecutive polls without a driver before giving up: a job's successor may be about to start."""


def detach(home: Path, request: Request, foreground_options: Sequence[str]) -> int | None:
    """With `--detach`, plan the request and start its driver in the background; return the exit code.

    Returns None without `--detach`. `foreground_options` lists the options in use whose output goes to the terminal.
    """
    if not request.features.get("detach"):
        return None
    if foreground_options:
        raise InputError(f"{foreground_options[0]} prints its output in this terminal: leave out --detach")
    from accelsweep.planning.plan import write_plan

    prepared = PreparedCommand.of(home, request)
    site, plan = prepared.site, prepared.sweep_plan
    folder = SweepFolder(home, prepared.sweep)
    blocks = [block.resources for block in prepared.plan.manifest.blocks] if prepared.plan else []
    backend = select_backend(site, prepared.request.nodes, blocks)
    backend.check(folder, driver_name(backend, folder))
    with lock_sweep(folder, cancel_old=request.cancel_old) as lock:
        if active := active_submission(folder):
            raise AccelsweepError(
                f"sweep {folder.name!r} already has a driver: {active[1].description}; accelsweep attach {folder.name}"
            )
        if request.cancel_old and (scheduler := scheduler_of(site)):
            wait_for_earlier_jobs(JobQueue(folder, scheduler, say), cancel=True, on_poll=lock.heartbeat)
        if plan is not None and not folder.manifest.exists():
            write_plan(home, plan)  # for `status` while the driver is pending; later plans are written by the driver
        DriverSpec(
            request=replace(prepared.request, cancel_old=False, features=prepared.request.features | {"detach": None}),
            site=site,
            sweeps=prepared.sweeps,
            revision=plan.manifest.revision if plan is not None else 1,
            secrets=forwarded_secrets(backend, site),
        ).write(folder.driver_file("order"))
        driver_id = _start(backend, folder)
    if not backend.queues:
        _wait_for_start(backend, folder, driver_id)
    state = backend.state(driver_id)
    say(f"the driver runs in the background: {state.description if state else 'it has ended already'}")
    say(f"follow it: accelsweep attach {folder.name}")
    if state is not None:
        for hint in stop_hints(backend, driver_id, pending=state.pending):
            say(hint)
        if backend.warning is not None:
            say(backend.warning)
    return driver_exit_code(folder) or EXIT_OK


def forwarded_secrets(backend: Backend, site: Site) -> dict[str, str]:
    """Return the variables that must not be passed through Slurm; a driver on this machine inherits all variables."""
    if backend.name != "slurm":
        return {}
    return {name: os.environ[name] for name in secrets_in(os.environ, site.slurm.secrets)}


def _start(backend: Backend, folder: SweepFolder) -> str:
    """Start the driver and return its ID; if that fails, remove its spec."""
    for file in (folder.driver_file("ended"), driver_log(folder)):
        file.unlink(missing_ok=True)
    driver_log(folder).parent.mkdir(parents=True, exist_ok=True)
    try:
        driver_id = backend.start(folder, driver_command(folder), driver_name(backend, folder))
    except BaseException:
        folder.driver_file("order").unlink()
        raise
    submission = Submission(place=backend.name, name=driver_id, host=socket.gethostname(), since=now())
    submission.write(folder.driver_file("handed"))
    return driver_id


def _wait_for_start(backend: Backend, folder: SweepFolder, driver_id: str) -> None:
    """Wait until the driver has locked the sweep or ended. Raises AccelsweepError if it ends during startup."""
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while (
        live_lock(folder.driver_file("lock")) is None
        and driver_exit_code(folder) is None
        and time.monotonic() < deadline
    ):
        if backend.state(driver_id) is None and driver_exit_code(folder) is None:
            log = driver_log(folder)
            output = [line for line in tail_lines(log) if line.strip()] if log.exists() else []
            raise AccelsweepError(f"the driver ended on start: {output[-1] if output else 'it printed nothing'}; {log}")
        time.sleep(_START_POLL_SECONDS)


def attach(home: Path, name: str) -> int:
    """Print the detached driver's past and new output until the driver ends; return its exit code."""
    folder = SweepFolder(home, name)
    submission = last_submission(folder)
    if submission is None:
        if (driver := active_driver(folder)) is not None:
            raise InputError(f"the driver of sweep {name!r} runs in a terminal: process {driver.pid} on {driver.host}")
        raise InputError(f"sweep {name!r} has no detached driver; accelsweep run ... --detach starts one")
    try:
        return _LogFollower(folder).follow()
    except KeyboardInterrupt:
        submission = last_submission(folder) or submission
        backend, pending = backend_of(submission), False
        with contextlib.suppress(AccelsweepError):
            pending = (state := backend.state(submission.name)) is not None and state.pending
        say(f"\nthe driver keeps running. Follow it again: accelsweep attach {name}")
        for hint in stop_hints(backend, submission.name, pending=pending):
            say(hint)
        return EXIT_INTERRUPTED


class _LogFollower:
    """Prints a driver's log, each line once, and messages about the driver's state."""

    def __init__(self, folder: SweepFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._offset = 0
        self._polled_at: float | None = None
        self._misses = 0
        self._pending_message = ""

    def follow(self) -> int:
        """Print the log until the driver has ended; return its exit code."""
        while True:
            code = driver_exit_code(self._folder)  # before reading the log, which is complete by then
            self._print_new_lines()
            if code is not None:
                return code
            self._poll_state()
            if self._misses >= _MISSES and driver_exit_code(self._folder) is None:
                raise AccelsweepError(
                    f"the detached driver of {self._folder.name!r} ended without a message, so it was probably killed. "
                    f"Its output is in {driver_log(self._folder)}. The same command resumes the sweep"
                )
            time.sleep(_LOG_POLL_SECONDS)

    def _print_new_lines(self) -> None:
        try:
            with open_regular(driver_log(self._folder)) as log:
                log.seek(self._offset)
                new = log.read()
        except FileNotFoundError:
            return
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.decode("utf-8", "replace").splitlines():
            say(line)

    def _poll_state(self) -> None:
        """Check periodically whether the driver exists, and report why it is pending."""
        if self._polled_at is not None and self._clock() - self._polled_at < _STATE_POLL_SECONDS:
            return
        self._polled_at = self._clock()
        try:
            active = active_submission(self._folder)
        except AccelsweepError as error:
            say(str(error))
            return
        self._misses = 0 if active else self._misses + 1
        message = active[1].description if active and active[1].pending else ""
        if message and message != self._pending_message:
            say(f"the driver is pending: {message}")
        self._pending_message = message


def attach_command(name: SweepName) -> None:
    """`accelsweep attach NAME`."""
    raise typer.Exit(attach(Path.cwd(), name))
