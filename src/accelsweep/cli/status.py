"""`accelsweep status`: the state of sweeps, read from their files and, on a cluster, from the job queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from accelsweep.config.setting import repeat_label
from accelsweep.driver.console import say, say_bold
from accelsweep.driver.job_queue import list_jobs
from accelsweep.driver.json_output import Answer
from accelsweep.driver.request import FIRST_COMMANDS, command_list
from accelsweep.driver.sweep_lock import BackgroundState, active_driver, background_drivers
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, DamagedFile, NewerFile
from accelsweep.executor.result_reuse import CurrentConditions
from accelsweep.json_documents import Frozen
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MANIFEST_FILE, SWEEPS_FOLDER, SweepFolder, existing_sweep, known_sweeps
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_files import shared_devices_of
from accelsweep.records.sweep_progress import LockedBlock, SweepStatus, outdated_text, status
from accelsweep.results import Outcome
from accelsweep.schedulers.protocol import Job, Scheduler
from accelsweep.schedulers.select import scheduler_of
from accelsweep.significant_digits import count_of, format_duration


class SweepState(SweepStatus):
    """A sweep: its runs, driver, jobs and report."""

    driver: LockOwner | None = Field(description="the `accelsweep run` process that currently drives it")
    background: BackgroundState | None = Field(description="the driver that was started in the background, if any")
    jobs: tuple[Job, ...] | None = Field(description="its jobs on a cluster; null if no queue was queried")
    jobs_reason: str | None = Field(description="why the queue was not queried")
    recommendation: str | None = Field(description="the headline of its report")
    report: str | None = Field(description="the path of its report")
    report_outdated: bool = Field(description="whether runs or plan have changed since the report")


class UnplannedDriver(Frozen):
    """A background driver with no plan of the same name: it runs several sweeps or still searches for batch sizes."""

    sweep: str = Field(description="the name under which it can be followed")
    background: BackgroundState = Field(description="the driver")


class UnreadableSweep(Frozen):
    """A sweep whose plan cannot be read."""

    sweep: str = Field(description="the sweep's name")
    why: str = Field(description="the fault and, if there is one, its remedy")


class StatusAnswer(Answer):
    """`accelsweep status --json`: the state of one sweep, or of all sweeps in the folder."""

    kind: ClassVar[str] = "status"

    sweeps: tuple[SweepState, ...] = Field((), description="the sweeps, in alphabetical order")
    unreadable: tuple[UnreadableSweep, ...] = Field(
        (), description="sweeps that cannot be read; if any, the exit code is 1"
    )
    unplanned: tuple[UnplannedDriver, ...] = Field((), description="background drivers without a plan")


def print_status(home: Path, name: str | None, *, as_json: bool = False) -> int:
    """Print the state of one sweep, or of all sweeps in this folder; a damaged sweep does not hide the others.

    Return 1 if any of several sweeps' plans cannot be read, else 0.
    """
    if name is None:
        answer = _all_sweeps(home)
    elif name in _unplanned_names(home):
        answer = StatusAnswer(unplanned=_unplanned(home, [name]))
    else:
        answer = StatusAnswer(sweeps=(_state(existing_sweep(home, name)),))
    if as_json:
        say(answer.text())
        for unreadable in answer.unreadable:
            say(f"accelsweep: error: {unreadable.sweep}: {unreadable.why}", err=True)
    else:
        _print(home, answer)
    return EXIT_INCOMPLETE if answer.unreadable else EXIT_OK


def _all_sweeps(home: Path) -> StatusAnswer:
    states, unreadable = [], []
    for name in known_sweeps(home):
        try:
            states.append(_state(SweepFolder(home, name)))
        except DamagedFile as error:
            unreadable.append(UnreadableSweep(sweep=name, why=f"damaged: {error}"))
        except NewerFile as error:
            unreadable.append(UnreadableSweep(sweep=name, why=str(error)))
    unplanned = _unplanned(home, _unplanned_names(home))
    return StatusAnswer(sweeps=tuple(states), unreadable=tuple(unreadable), unplanned=unplanned)


def _unplanned_names(home: Path) -> list[str]:
    """Return the names of folders in `sweeps/` that contain a background driver but no plan."""
    roots = (root for root in (home / SWEEPS_FOLDER).glob("*/") if not (root / MANIFEST_FILE).exists())
    return sorted(root.name for root in roots if _background(SweepFolder(home, root.name)))


def _unplanned(home: Path, names: Sequence[str]) -> tuple[UnplannedDriver, ...]:
    drivers = {name: _background(SweepFolder(home, name)) for name in names}
    return tuple(UnplannedDriver(sweep=name, background=driver) for name, driver in drivers.items() if driver)


def _state(folder: SweepFolder) -> SweepState:
    manifest = Manifest.read(folder.manifest)
    current = CurrentConditions(folder, manifest.site)
    runs, findings = status(folder, manifest, current.why_outdated), _findings(folder)
    scheduler = scheduler_of(manifest.site)
    jobs, jobs_reason = _jobs(folder, scheduler) if scheduler else (None, None)
    return SweepState(
        **dict(runs),
        driver=active_driver(folder),
        background=_background(folder),
        jobs=jobs,
        jobs_reason=jobs_reason,
        recommendation=findings.recommendation.headline if findings else None,
        report=str(folder.page.relative_to(folder.home)) if folder.page.is_file() else None,
        report_outdated=findings is not None and _is_outdated(findings, runs),
    )


def _background(folder: SweepFolder) -> BackgroundState | None:
    return next((state for driver in background_drivers(folder) if (state := driver.state())), None)


def _findings(folder: SweepFolder) -> Findings | None:
    try:
        return Findings.read(folder.findings)
    except (FileNotFoundError, DamagedFile, NewerFile):
        return None  # the next report regenerates them from the records


def _is_outdated(findings: Findings, runs: SweepStatus) -> bool:
    """Return whether runs have ended, been reopened or been planned since the findings were computed."""
    derived = (Outcome.not_run, Outcome.unsupported)  # findings add settings that never run to these counts
    then = {outcome: count for outcome, count in findings.outcomes.items() if outcome not in derived}
    now = {outcome: count for outcome, count in runs.outcomes.items() if outcome not in derived}
    return findings.revision != runs.revision or then != now


def _jobs(folder: SweepFolder, scheduler: Scheduler) -> tuple[tuple[Job, ...] | None, str | None]:
    try:
        return tuple(list_jobs(folder, scheduler)), None
    except AccelsweepError as error:
        return None, str(error)


def _print(home: Path, answer: StatusAnswer) -> None:
    for state in answer.sweeps:
        folder = SweepFolder(home, state.sweep)
        devices = shared_devices_of(folder, Manifest.read(folder.manifest))
        say_bold(f"{state.sweep}: {_result(state)}")
        for line in _lines(state, devices):
            say(f"  {line}")
    for unplanned in answer.unplanned:
        say(f"{unplanned.sweep}: {_describe_background(unplanned.background)}")
    for unreadable in answer.unreadable:
        say(f"{unreadable.sweep}: {unreadable.why}")
    if not (answer.sweeps or answer.unplanned or answer.unreadable):
        say(f"no sweeps in {home / SWEEPS_FOLDER} yet; start with one of:")
        say(command_list(FIRST_COMMANDS))


def _result(state: SweepState) -> str:
    """Return the headline of the report, or why there is none."""
    if state.recommendation is None:
        return "no report yet" if state.settled else "nothing has been measured yet"
    return f"{state.recommendation}{' (outdated: runs or the plan have changed since)' * state.report_outdated}"


def _lines(state: SweepState, devices: str) -> Iterator[str]:
    driver, background = state.driver, state.background
    counts = ", ".join(f"{count} {outcome}" for outcome, count in state.outcomes.items())
    if state.planned:
        yield f"{state.settled} of {count_of(state.planned, 'run')} settled{devices}{f' ({counts})' if counts else ''}"
    else:
        yield "no run is planned, because no setting can run here"
    if outdated := outdated_text(state.outdated):
        yield f"{outdated}; the same `accelsweep run` measures them again"
    if driver is not None:
        yield f"driver: process {driver.pid} on {driver.host} since {driver.since}"
    if background is not None and background.code is None:
        yield _describe_background(background)
    if state.jobs_reason is not None:
        yield f"the queue was not queried: {state.jobs_reason}"
    if state.jobs is not None:
        yield from map(str, state.jobs)
        if not state.jobs:
            yield "no job of this sweep is queued or running"
    yield from map(_describe_block, state.running)
    for outcome, count in state.outcomes.items():
        if not outcome.settled:
            lists = f"accelsweep runs {state.sweep} --outcome {outcome} gives the reason"
            yield f"{outcome}: {count_of(count, 'run')}; {lists}{'s' if count > 1 else ''}"
    if state.remaining:
        left = "" if state.seconds_left is None else f", about {format_duration(state.seconds_left)}"
        yield f"remaining: {state.remaining} runs{left}{'' if driver else '; no driver is running'}"
    yield from (f"not_run: {count_of(count, 'run')}: {reason}" for reason, count in state.kept.items())
    yield from (f"doubt: {repeat_label(run.label, run.repeat)}: {run.doubt.message}" for run in state.doubts)
    yield from (f"damaged: {damaged}" for damaged in state.damaged)
    if state.report is not None:
        yield f"report: {state.report}"


def _describe_background(driver: BackgroundState) -> str:
    """Return where a background driver runs, or how it ended, and how to follow it."""
    if driver.code is not None:
        state = f"ended with exit code {driver.code}"
    else:
        state = driver.state or f"vanished from {driver.place} on {driver.host}; the same command resumes the sweep"
    return f"in the background since {driver.since}: {state}; {driver.follow} shows its output"


def _describe_block(block: LockedBlock) -> str:
    state = "running" if block.alive else "left by a dead process"
    job = f"job {block.job}, " if block.job else ""
    text = f"block {block.block} {state} on {block.host}, {job}process {block.pid}, since {block.since}"
    if block.run is None:
        return text
    step = "" if block.step is None else f", step {block.step}"
    return f"{text}: {block.label} since {block.run_since}{step}"
