"""`--detach`: plan here to report errors at once, then run the driver in the background; and `accelsweep attach`."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
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
from accelsweep.features.detach.job import BackgroundCommand, DriverOrder
from accelsweep.features.detach.places import (
    Place,
    StartedDriver,
    detached,
    driver_exit_code,
    driver_log,
    name_in,
    place_for,
    place_of,
    started_driver,
    ways_to_end,
)
from accelsweep.files import open_regular, tail_lines
from accelsweep.records.file_lock import live_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import now
from accelsweep.schedulers.job_environment import secrets_in
from accelsweep.schedulers.select import engine_of

_BEGIN_SECONDS = 60.0

_LOOK_SECONDS = 0.2


def hand_over(home: Path, request: Request, answers_here: Sequence[str]) -> int | None:
    """Plan the request, and start its driver in the background where `--detach` is given; return the exit code."""
    if not request.features.get("detach"):
        return None
    if answers_here:
        raise InputError(f"{answers_here[0]} answers in this terminal: leave --detach out")
    from accelsweep.planning.plan import write_plan

    background = BackgroundCommand.of(home, request)
    site, sweep, plan = background.site, background.sweep, background.first_plan
    blocks = [block.resources for block in background.plan.manifest.blocks] if background.plan else []
    place, folder = (
        place_for(site, background.request.nodes, blocks),
        SweepFolder(home, sweep),
    )
    place.check(folder, name_in(place, folder))
    with lock_sweep(folder, cancel_old=request.cancel_old) as lock:
        if found := detached(folder):
            raise AccelsweepError(
                f"sweep {sweep!r} already has a driver in the background: {found[1].words}; accelsweep attach {sweep}"
            )
        if request.cancel_old and (engine := engine_of(site)):
            wait_for_earlier_jobs(JobQueue(folder, engine, say), cancel=True, on_poll=lock.heartbeat)
        if plan is not None and not folder.manifest.exists():
            write_plan(home, plan)  # for `status` while the driver waits; a later plan is the driver's to write
        DriverOrder(
            request=replace(
                background.request, cancel_old=False, features=background.request.features | {"detach": None}
            ),
            site=site,
            sweeps=background.sweeps,
            revision=plan.manifest.revision if plan is not None else 1,
            secrets={name: os.environ[name] for name in _left_behind(place, site)},
        ).write(folder.driver_file("order"))
        handed = _started(place, folder)
    return _told(place, folder, handed)


def _left_behind(place: Place, site: Site) -> list[str]:
    """Return the names of the variables that a driver's job does not get; a driver on this machine gets all."""
    return secrets_in(os.environ, site.slurm.secrets) if place.kind == "slurm" else []


def _started(place: Place, folder: SweepFolder) -> StartedDriver:
    """Have the place start the driver; without one the order is taken back."""
    for file in (folder.driver_file("ended"), driver_log(folder)):
        file.unlink(missing_ok=True)
    driver_log(folder).parent.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-P", "-m", "accelsweep.features.detach.job", str(folder.root))
    try:
        name = place.start(folder, command, name_in(place, folder))
    except BaseException:
        folder.driver_file("order").unlink()
        raise
    handed = StartedDriver(place=place.kind, name=name, host=socket.gethostname(), since=now())
    handed.write(folder.driver_file("handed"))
    return handed


def _told(place: Place, folder: SweepFolder, handed: StartedDriver) -> int:
    """Say where the driver went, once it has begun there, or waits; return the exit code."""
    if not place.waits:
        _see_begin(place, folder, handed.name)
    found = place.state(handed.name)
    say(f"the driver runs in the background: {found.words if found else 'it has ended already'}")
    say(f"follow it: accelsweep attach {folder.name}")
    if found is not None:
        for line in ways_to_end(place, handed.name, waits=found.waits):
            say(line)
        if place.caution is not None:
            say(place.caution)
    return driver_exit_code(folder) or EXIT_OK


def _see_begin(place: Place, folder: SweepFolder, name: str) -> None:
    """Wait until the driver holds the sweep, or has ended. Raises AccelsweepError if it ends before it begins."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    lock = folder.driver_file("claim")
    while live_lock(lock) is None and driver_exit_code(folder) is None and time.monotonic() < deadline:
        if place.state(name) is None and driver_exit_code(folder) is None:
            said = (
                [line for line in tail_lines(driver_log(folder)) if line.strip()] if driver_log(folder).exists() else []
            )
            why = said[-1] if said else "it said nothing"
            raise AccelsweepError(f"the driver ended before it began: {why}; {driver_log(folder)} has more")
        time.sleep(_LOOK_SECONDS)


# `accelsweep attach`: what a detached driver prints, until its end. Ctrl-C leaves the driver to its work.

_READ_SECONDS = 0.5

_ASK_SECONDS = 10.0

_GONE = 3
"""So many times in a row a driver has to be absent: one job may follow another one."""


def attach(home: Path, name: str) -> int:
    """Print what the detached driver of this sweep has said and says, until it ends; return its exit code."""
    folder = SweepFolder(home, name)
    handed = started_driver(folder)
    if handed is None:
        raise InputError(_none(folder))
    shown = _Shown(folder)
    try:
        return shown.to_the_end()
    except KeyboardInterrupt:
        handed = started_driver(folder) or handed
        say(f"\nthe driver keeps running. Follow it again: accelsweep attach {name}")
        for line in _ways_to_end(handed):
            say(line)
        return EXIT_INTERRUPTED


def _ways_to_end(handed: StartedDriver) -> list[str]:
    place, waits = place_of(handed), False
    with contextlib.suppress(AccelsweepError):
        waits = (found := place.state(handed.name)) is not None and found.waits
    return ways_to_end(place, handed.name, waits=waits)


def _none(folder: SweepFolder) -> str:
    driver = active_driver(folder)
    if driver is not None:
        return f"the driver of sweep {folder.name!r} has a terminal: it is process {driver.pid} on {driver.host}"
    return f"sweep {folder.name!r} has no detached driver; accelsweep run ... --detach starts one"


class _Shown:
    """The driver's log, shown once, and words for what happens beside it."""

    def __init__(self, folder: SweepFolder, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._at = 0
        self._asked_at: float | None = None
        self._absent = 0
        self._waits = ""

    def to_the_end(self) -> int:
        while True:
            ended = driver_exit_code(self._folder)  # before the log is read: nothing is said after that
            self._print_new()
            if ended is not None:
                return ended
            self._ask()
            if self._absent >= _GONE and driver_exit_code(self._folder) is None:
                raise AccelsweepError(
                    f"the detached driver of {self._folder.name!r} ended without a message, so it was probably killed. "
                    f"{driver_log(self._folder)} has its output. The same command resumes"
                )
            time.sleep(_READ_SECONDS)

    def _print_new(self) -> None:
        try:
            with open_regular(driver_log(self._folder)) as log:
                log.seek(self._at)
                new = log.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            say(line)

    def _ask(self) -> None:
        """Look now and then whether the driver is there, and say so where it waits."""
        if self._asked_at is not None and self._clock() - self._asked_at < _ASK_SECONDS:
            return
        self._asked_at = self._clock()
        try:
            found = detached(self._folder)
        except AccelsweepError as error:
            say(str(error))
            return
        self._absent = 0 if found else self._absent + 1
        words = found[1].words if found and found[1].waits else ""
        if words and words != self._waits:
            say(f"the driver waits: {words}")
        self._waits = words


def attach_command(name: SweepName) -> None:
    """`accelsweep attach NAME`."""
    raise typer.Exit(attach(Path.cwd(), name))
