"""`accelsweep status`: the state of sweeps, from their files, and from Slurm's queue if they run on a cluster."""

from __future__ import annotations

from pathlib import Path

import typer

from accelsweep.base.digits import count_of
from accelsweep.base.errors import EXIT_INCOMPLETE, AccelsweepError, DamagedFile, NewerFile
from accelsweep.core.cell import label
from accelsweep.core.plans import Manifest, Run
from accelsweep.drive import slurm
from accelsweep.drive.console import duration, say
from accelsweep.drive.head import living_head
from accelsweep.state.folders import SweepFolder, existing_sweep, known_sweeps
from accelsweep.state.status import Status, WorkedBlock, status


def print_status(home: Path, name: str | None) -> None:
    """Print the state of one sweep, or of all of them in this folder; one that is damaged hides no other."""
    if name is not None:
        _print(existing_sweep(home, name))
        return
    names = known_sweeps(home)
    if not names:
        say(f"no sweeps in {home / 'sweeps'} yet; begin with: accelsweep run experiment=quickstart")
    damaged = 0
    for found in names:
        try:
            _print(SweepFolder(home, found))
        except DamagedFile as error:
            damaged += 1
            say(f"{found}: damaged: {error}")
        except NewerFile as error:
            damaged += 1
            say(f"{found}: {error}")
    if damaged:
        raise typer.Exit(EXIT_INCOMPLETE)


def _print(folder: SweepFolder) -> None:
    state = status(folder)
    say(f"{folder.name}: {state.planned} runs planned, {state.planned - state.remaining} settled{_counts(state)}")
    manifest = Manifest.read(folder.manifest)
    labels = {cell.name: label(cell.axes) for cell in manifest.cells}
    head = living_head(folder)
    say(f"  head: process {head.pid} on {head.host} since {head.since}" if head else "  head: none")
    if manifest.site.scheduler == "slurm":
        _print_jobs(folder)
    for running in state.running:
        say(f"  {_running(running, labels)}")
    if state.remaining:
        left = "" if state.seconds_left is None else f", about {duration(state.seconds_left)}"
        say(f"  remaining: {state.remaining} runs{left}")
    for why, count in state.kept.items():
        say(f"  not_run: {count_of(count, 'run')}: {why}")
    for run, doubt in state.doubts:
        say(f"  doubt: {run}: {doubt.message}")
    for damaged in state.damaged:
        say(f"  damaged: {damaged}")


def _print_jobs(folder: SweepFolder) -> None:
    try:
        found = slurm.jobs(folder)
    except AccelsweepError as error:
        say(f"  Slurm was not asked: {error}")
        return
    for job in found:
        say(f"  {job}")
    if not found:
        say("  no job of this sweep waits or runs in Slurm")


def _counts(state: Status) -> str:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(state.outcomes.items()))
    return f" ({counts})" if counts else ""


def _running(running: WorkedBlock, labels: dict[str, str]) -> str:
    hold = running.hold
    life = "running" if running.alive else "left by a dead process"
    job = f"job {hold.job}, " if hold.job else ""
    where = f"block {hold.block} {life} on {hold.host}, {job}process {hold.pid}, since {hold.since}"
    if hold.run is None:
        return where
    cell = labels.get(Run.parse(hold.run).cell, hold.run)
    step = "" if running.step is None else f", step {running.step}"
    return f"{where}: {cell} since {hold.run_since}{step}"
