"""`accelsweep status`: the state of sweeps, from their files, and from the queue if they run on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from accelsweep.cli.runs import devices_of
from accelsweep.config.setting import label, repeat_label
from accelsweep.driver.console import say
from accelsweep.driver.job_queue import list_jobs
from accelsweep.driver.json_output import Answer, AnswerPart
from accelsweep.driver.sweep_lock import BackgroundState, active_driver, background_drivers
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, DamagedFile, NewerFile
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MANIFEST_FILE, SWEEPS_FOLDER, SweepFolder, existing_sweep, known_sweeps
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_progress import Status, WorkedBlock, status
from accelsweep.results import Doubt, Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.protocol import Engine, Job
from accelsweep.schedulers.select import engine_of
from accelsweep.significant_digits import count_of, format_duration

# The answer of `accelsweep status`.


class HeadAtWork(AnswerPart):
    """A process that works on a sweep."""

    host: str = Field(description="the machine's name")
    pid: int = Field(description="the process' number there")
    since: str = Field(description="when it began")


class BlockAtWork(AnswerPart):
    """A block with a supervisor, or with one that ended without giving it back."""

    block: str = Field(description="the block's name")
    alive: bool = Field(description="whether the supervisor lives")
    host: str = Field(description="the machine's name")
    pid: int = Field(description="the supervisor's process there")
    job: str | None = Field(description="its job on the cluster")
    since: str = Field(description="when it began")
    run: str | None = Field(description="the run that it measures")
    label: str | None = Field(description="that run's setting in words")
    run_since: str | None = Field(description="when that run began")
    step: int | None = Field(description="the steps that the run has done")


class JobInQueue(AnswerPart):
    """A job of the sweep in a cluster's queue."""

    number: str = Field(description="the job's number")
    block: str = Field(description="the block that it measures")
    state: str = Field(description="the engine's word for its state")
    reason: str = Field(description="why it waits")
    nodes: str = Field(description="where it runs, empty until it does")
    elapsed: str = Field(description="for how long it has run")


class RunDoubt(AnswerPart):
    """A doubt of one run."""

    run: str = Field(description="the run's name")
    label: str = Field(description="its setting in words")
    repeat: int = Field(description="its number among the runs of its setting, from 0")
    doubt: Doubt = Field(description="the doubt")


class SweepState(AnswerPart):
    """A sweep at one moment."""

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the number of its plan")
    planned: int = Field(description="the runs that the plan wants")
    settled: int = Field(description="those of them that have an answer")
    remaining: int = Field(description="the others")
    outcomes: dict[Outcome, int] = Field(description="how many runs ended how")
    seconds_left: float | None = Field(description="about how long the remaining runs take")
    head: HeadAtWork | None = Field(description="the `accelsweep run` that drives it now")
    background: BackgroundState | None = Field(description="the driver that was started in the background, if one was")
    running: tuple[BlockAtWork, ...] = Field(description="the blocks that are being measured")
    jobs: tuple[JobInQueue, ...] | None = Field(description="its jobs on a cluster, null where no queue was asked")
    jobs_reason: str | None = Field(description="why the queue was not asked")
    kept: dict[str, int] = Field(description="why runs have no record, and how many")
    doubts: tuple[RunDoubt, ...] = Field(description="the last few doubts")
    damaged: tuple[str, ...] = Field(description="records that cannot be read, and why")
    recommendation: str | None = Field(description="the headline of its report")
    report: str | None = Field(description="the path of its report")
    report_outdated: bool = Field(description="whether runs or plan have changed since the report")


class UnplannedHead(AnswerPart):
    """A background driver without a plan under its name: one of several sweeps, or of one that searches first."""

    sweep: str = Field(description="the name under which it can be followed")
    background: BackgroundState = Field(description="the driver")


class UnreadableSweep(AnswerPart):
    """A sweep whose plan cannot be read."""

    sweep: str = Field(description="the sweep's name")
    why: str = Field(description="the fault, and where there is one, its remedy")


class StatusAnswer(Answer):
    """`accelsweep status --json`: the state of one sweep, or of all sweeps of the folder."""

    kind: ClassVar[str] = "status"

    sweeps: tuple[SweepState, ...] = Field(description="the sweeps, in alphabetical order")
    unreadable: tuple[UnreadableSweep, ...] = Field(description="sweeps that cannot be read; then the exit code is 1")
    unplanned: tuple[UnplannedHead, ...] = Field(description="background drivers without a plan")


def print_status(home: Path, name: str | None, *, as_json: bool = False) -> int:
    """Print the state of one sweep, or of all of them in this folder; one that is damaged hides no other.

    Returns 1 if the plan of one of several sweeps cannot be read, else 0.
    """
    if name is None:
        found = _states(home)
    elif name in _unplanned_names(home):
        found = StatusAnswer(sweeps=(), unreadable=(), unplanned=_unplanned(home, [name]))
    else:
        found = StatusAnswer(sweeps=(_state(existing_sweep(home, name)),), unreadable=(), unplanned=())
    if as_json:
        say(found.text())
        for unreadable in found.unreadable:
            say(f"accelsweep: error: {unreadable.sweep}: {unreadable.why}", err=True)
    else:
        _print(home, found)
    return EXIT_INCOMPLETE if found.unreadable else EXIT_OK


def _states(home: Path) -> StatusAnswer:
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
    """Return the folders below `sweeps/` that have a background driver and no plan."""
    roots = (root for root in (home / SWEEPS_FOLDER).glob("*/") if not (root / MANIFEST_FILE).exists())
    return sorted(root.name for root in roots if _background(SweepFolder(home, root.name)))


def _unplanned(home: Path, names: Sequence[str]) -> tuple[UnplannedHead, ...]:
    drivers = {name: _background(SweepFolder(home, name)) for name in names}
    return tuple(UnplannedHead(sweep=name, background=driver) for name, driver in drivers.items() if driver)


def _state(folder: SweepFolder) -> SweepState:
    state, manifest = status(folder), Manifest.read(folder.manifest)
    labels = {setting.name: label(setting.axes) for setting in manifest.settings}
    head = active_driver(folder)
    engine = engine_of(manifest.site)
    jobs, jobs_reason = _jobs(folder, engine) if engine else (None, None)
    findings, page = _findings(folder), folder.page
    return SweepState(
        sweep=folder.name,
        revision=manifest.revision,
        planned=state.planned,
        settled=state.planned - state.remaining,
        remaining=state.remaining,
        outcomes=dict(sorted(state.outcomes.items())),
        seconds_left=state.seconds_left if state.remaining else None,
        head=HeadAtWork.model_validate(head) if head else None,
        background=_background(folder),
        running=tuple(_working(running, labels) for running in state.running),
        jobs=jobs,
        jobs_reason=jobs_reason,
        kept=dict(state.kept),
        doubts=tuple(_doubt(run, doubt, labels) for run, doubt in state.doubts),
        damaged=tuple(map(str, state.damaged)),
        recommendation=findings.recommendation.sentence if findings else None,
        report=str(page.relative_to(folder.home)) if page.is_file() else None,
        report_outdated=findings is not None and _outdated(findings, manifest, state),
    )


def _background(folder: SweepFolder) -> BackgroundState | None:
    return next((state for driver in background_drivers(folder) if (state := driver.state())), None)


def _findings(folder: SweepFolder) -> Findings | None:
    try:
        return Findings.read(folder.findings)
    except (FileNotFoundError, DamagedFile, NewerFile):
        return None  # they are made from the records whenever the report is


def _outdated(findings: Findings, manifest: Manifest, state: Status) -> bool:
    """Return whether runs have ended, were re-opened or were planned since the findings were made."""
    derived = (Outcome.not_run, Outcome.unsupported)  # those of settings that never run are counted there, too
    then = {outcome: count for outcome, count in findings.outcomes.items() if outcome not in derived}
    now = {outcome: count for outcome, count in state.outcomes.items() if outcome not in derived}
    return findings.revision != manifest.revision or then != now


def _jobs(folder: SweepFolder, engine: Engine) -> tuple[tuple[JobInQueue, ...] | None, str | None]:
    try:
        return tuple(map(JobInQueue.model_validate, list_jobs(folder, engine))), None
    except AccelsweepError as error:
        return None, str(error)


def _doubt(run: str, doubt: Doubt, labels: dict[str, str]) -> RunDoubt:
    setting, repeat = Run.parse(run)
    return RunDoubt(run=run, label=labels.get(setting, setting), repeat=repeat, doubt=doubt)


def _working(running: WorkedBlock, labels: dict[str, str]) -> BlockAtWork:
    hold = running.hold
    return BlockAtWork(
        block=hold.block,
        alive=running.alive,
        host=hold.host,
        pid=hold.pid,
        job=hold.job,
        since=hold.since,
        run=hold.run,
        label=labels.get(Run.parse(hold.run).setting, hold.run) if hold.run else None,
        run_since=hold.run_since,
        step=running.step,
    )


def _print(home: Path, found: StatusAnswer) -> None:
    for state in found.sweeps:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in state.outcomes.items())
        ended = f" ({counts})" if counts else ""
        say(f"{state.sweep}: {state.planned} runs planned{_devices(home, state.sweep)}, {state.settled} settled{ended}")
        for line in _lines(state):
            say(f"  {line}")
    for unplanned in found.unplanned:
        say(f"{unplanned.sweep}: {_away(unplanned.background)}")
    for unreadable in found.unreadable:
        say(f"{unreadable.sweep}: {unreadable.why}")
    if not (found.sweeps or found.unplanned or found.unreadable):
        say(f"no sweeps in {home / 'sweeps'} yet; begin with: accelsweep run experiment=quickstart")


def _devices(home: Path, name: str) -> str:
    folder = SweepFolder(home, name)
    return devices_of(folder, Manifest.read(folder.manifest))


def _lines(state: SweepState) -> Iterator[str]:
    head, away = state.head, state.background
    yield f"head: process {head.pid} on {head.host} since {head.since}" if head else "head: none"
    if away is not None and away.code is None:
        yield _away(away)
    if state.jobs_reason is not None:
        yield f"the queue was not asked: {state.jobs_reason}"
    if state.jobs is not None:
        yield from map(_queued, state.jobs)
        if not state.jobs:
            yield "no job of this sweep waits or runs in the queue"
    yield from map(_running, state.running)
    if state.remaining:
        left = "" if state.seconds_left is None else f", about {format_duration(state.seconds_left)}"
        yield f"remaining: {state.remaining} runs{left}"
    yield from (f"not_run: {count_of(count, 'run')}: {why}" for why, count in state.kept.items())
    yield from (f"doubt: {repeat_label(one.label, one.repeat)}: {one.doubt.message}" for one in state.doubts)
    yield from (f"damaged: {damaged}" for damaged in state.damaged)
    older = " (older than the last runs or the plan)" if state.report_outdated else ""
    if state.recommendation is not None:
        yield f"result{older}: {state.recommendation}"
    if state.report is not None:
        yield f"report: {state.report}"


def _away(driver: BackgroundState) -> str:
    """Return where a background driver is, or how it ended, and how to follow it."""
    where = driver.state or f"gone without a word from {driver.place} on {driver.host}; the same command goes on"
    where = where if driver.code is None else f"ended with exit code {driver.code}"
    return f"in the background since {driver.since}: {where}; {driver.follow} shows its output"


def _queued(job: JobInQueue) -> str:
    return str(Job(**job.model_dump()))


def _running(one: BlockAtWork) -> str:
    life = "running" if one.alive else "left by a dead process"
    job = f"job {one.job}, " if one.job else ""
    where = f"block {one.block} {life} on {one.host}, {job}process {one.pid}, since {one.since}"
    if one.run is None:
        return where
    step = "" if one.step is None else f", step {one.step}"
    return f"{where}: {one.label} since {one.run_since}{step}"
