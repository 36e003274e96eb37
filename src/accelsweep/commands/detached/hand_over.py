"""`--detach`: plan here, so that faults are told at once, then hand the head over and let go."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

from accelsweep.commands.detached.errand import Errand
from accelsweep.commands.detached.order import HeadOrder
from accelsweep.config.site import Site
from accelsweep.drive.detached.handed import Handed, end_of_head
from accelsweep.drive.detached.places import Place, detached, name_in, place_for, ways_to_end
from accelsweep.driver.console import say
from accelsweep.driver.job_queue import Queue, settle_old_jobs
from accelsweep.driver.run_sweep import Request
from accelsweep.driver.sweep_lock import held
from accelsweep.errors import EXIT_OK, AccelsweepError
from accelsweep.files import tail_lines
from accelsweep.records.file_lock import living_hold
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import now
from accelsweep.schedulers.job_environment import secrets_in
from accelsweep.schedulers.select import engine_of

_BEGIN_SECONDS = 60.0
_LOOK_SECONDS = 0.2


def hand_over(home: Path, request: Request) -> int:
    """Plan what is asked for, and hand its head over to the place that there is; return the exit code."""
    from accelsweep.planning.plan import write_plan

    errand = Errand.of(home, request)
    site, sweep, plan = errand.site, errand.sweep, errand.first_plan
    blocks = [block.resources for block in errand.plan.manifest.blocks] if errand.plan else []
    place, folder = place_for(site, errand.request.fleet_nodes, blocks), SweepFolder(home, sweep)
    place.check(folder, name_in(place, folder))
    with held(folder, cancel_old=request.cancel_old) as head:
        if found := detached(folder):
            raise AccelsweepError(f"sweep {sweep!r} has a head already: {found[1].words}; accelsweep attach {sweep}")
        if request.cancel_old:
            settle_old_jobs(Queue(folder, engine_of(site), say), cancel=True, watch=head.beat)
        if plan is not None and not folder.manifest.exists():
            write_plan(home, plan)  # for `status` while the head waits; a later plan is the head's to write
        HeadOrder(
            request=replace(errand.request, cancel_old=False),
            site=site,
            sweeps=errand.sweeps,
            revision=plan.manifest.revision if plan is not None else 1,
            secrets={name: os.environ[name] for name in _left_behind(place, site)},
        ).write(folder.of_head("order"))
        handed = _started(place, folder)
    return _told(place, folder, handed)


def _left_behind(place: Place, site: Site) -> list[str]:
    """Return the names of the variables that a head's job does not get; a head on this machine gets all."""
    return secrets_in(os.environ, site.slurm.secrets) if place.kind == "slurm" else []


def _started(place: Place, folder: SweepFolder) -> Handed:
    """Have the place start the head; without one the order is taken back."""
    for file in (folder.of_head("ended"), folder.head_log):
        file.unlink(missing_ok=True)
    folder.head_log.parent.mkdir(parents=True, exist_ok=True)
    command = (sys.executable, "-P", "-m", "accelsweep.commands.detached.carry_on", str(folder.root))
    try:
        name = place.start(folder, command, name_in(place, folder))
    except BaseException:
        folder.of_head("order").unlink()
        raise
    handed = Handed(place=place.kind, name=name, host=socket.gethostname(), since=now())
    handed.write(folder.of_head("handed"))
    return handed


def _told(place: Place, folder: SweepFolder, handed: Handed) -> int:
    """Say where the head went, once it has begun there, or waits; return the exit code."""
    if not place.waits:
        _see_begin(place, folder, handed.name)
    found = place.state(handed.name)
    say(f"the head left this terminal: {found.words if found else 'it has ended already'}")
    say(f"follow it: accelsweep attach {folder.name}")
    if found is not None:
        for line in ways_to_end(place, handed.name, waits=found.waits):
            say(line)
        if place.caution is not None:
            say(place.caution)
    return end_of_head(folder) or EXIT_OK


def _see_begin(place: Place, folder: SweepFolder, name: str) -> None:
    """Wait until the head holds the sweep, or has ended. Raises AccelsweepError if it ends before it begins."""
    deadline = time.monotonic() + _BEGIN_SECONDS
    while living_hold(folder.of_head("claim")) is None and end_of_head(folder) is None and time.monotonic() < deadline:
        if place.state(name) is None and end_of_head(folder) is None:
            said = [line for line in tail_lines(folder.head_log) if line.strip()] if folder.head_log.exists() else []
            why = said[-1] if said else "it said nothing"
            raise AccelsweepError(f"the head ended before it began: {why}; {folder.head_log} has more")
        time.sleep(_LOOK_SECONDS)
