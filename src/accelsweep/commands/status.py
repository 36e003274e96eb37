"""`accelsweep status`: the state of sweeps, from their files, and from the queue if they run on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from accelsweep.answers.devices import devices_of
from accelsweep.answers.forms.state import (
    BlockAtWork,
    DetachedHeadState,
    HeadAtWork,
    JobInQueue,
    RunDoubt,
    StatusAnswer,
    SweepState,
    UnplannedHead,
    UnreadableSweep,
)
from accelsweep.base.digits import count_of
from accelsweep.base.durations import duration
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, DamagedFile, NewerFile
from accelsweep.core.cells.cell import label, repeat_label
from accelsweep.core.findings.findings import Findings
from accelsweep.core.planned.plans import Manifest, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt
from accelsweep.drive.detached.handed import end_of_head, handed_head
from accelsweep.drive.detached.places import detached
from accelsweep.drive.head import living_head
from accelsweep.drive.jobs.listed import jobs_of
from accelsweep.drive.terminal.console import say
from accelsweep.engines.engine import Engine, Job
from accelsweep.engines.known import engine_of
from accelsweep.state.folders import SweepFolder, existing_sweep, known_sweeps, unplanned_heads
from accelsweep.state.status import Status, WorkedBlock, status


def print_status(home: Path, name: str | None, *, as_json: bool = False) -> int:
    """Print the state of one sweep, or of all of them in this folder; one that is damaged hides no other.

    Returns 1 if the plan of one of several sweeps cannot be read, else 0.
    """
    if name is None:
        found = _states(home)
    elif name in unplanned_heads(home):
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
    unplanned = _unplanned(home, unplanned_heads(home))
    return StatusAnswer(sweeps=tuple(states), unreadable=tuple(unreadable), unplanned=unplanned)


def _unplanned(home: Path, names: Sequence[str]) -> tuple[UnplannedHead, ...]:
    heads = {name: _detached(SweepFolder(home, name)) for name in names}
    return tuple(UnplannedHead(sweep=name, detached=head) for name, head in heads.items() if head is not None)


def _state(folder: SweepFolder) -> SweepState:
    state, manifest = status(folder), Manifest.read(folder.manifest)
    labels = {cell.name: label(cell.axes) for cell in manifest.cells}
    head = living_head(folder)
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
        detached=_detached(folder),
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


def _detached(folder: SweepFolder) -> DetachedHeadState | None:
    handed = handed_head(folder)
    if handed is None:
        return None
    try:
        found = detached(folder)
        state = found[1].words if found else None
    except AccelsweepError as error:
        state = f"not known: {error}"
    return DetachedHeadState(**handed.body(), state=state, code=end_of_head(folder))


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
        return tuple(map(JobInQueue.model_validate, jobs_of(folder, engine))), None
    except AccelsweepError as error:
        return None, str(error)


def _doubt(run: str, doubt: Doubt, labels: dict[str, str]) -> RunDoubt:
    cell, repeat = Run.parse(run)
    return RunDoubt(run=run, label=labels.get(cell, cell), repeat=repeat, doubt=doubt)


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
        label=labels.get(Run.parse(hold.run).cell, hold.run) if hold.run else None,
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
        say(f"{unplanned.sweep}: {_away(unplanned.sweep, unplanned.detached)}")
    for unreadable in found.unreadable:
        say(f"{unreadable.sweep}: {unreadable.why}")
    if not (found.sweeps or found.unplanned or found.unreadable):
        say(f"no sweeps in {home / 'sweeps'} yet; begin with: accelsweep run experiment=quickstart")


def _devices(home: Path, name: str) -> str:
    folder = SweepFolder(home, name)
    return devices_of(folder, Manifest.read(folder.manifest))


def _lines(state: SweepState) -> Iterator[str]:
    head, away = state.head, state.detached
    yield f"head: process {head.pid} on {head.host} since {head.since}" if head else "head: none"
    if away is not None and away.code is None:
        yield _away(state.sweep, away)
    if state.jobs_reason is not None:
        yield f"the queue was not asked: {state.jobs_reason}"
    if state.jobs is not None:
        yield from map(_queued, state.jobs)
        if not state.jobs:
            yield "no job of this sweep waits or runs in the queue"
    yield from map(_running, state.running)
    if state.remaining:
        left = "" if state.seconds_left is None else f", about {duration(state.seconds_left)}"
        yield f"remaining: {state.remaining} runs{left}"
    yield from (f"not_run: {count_of(count, 'run')}: {why}" for why, count in state.kept.items())
    yield from (f"doubt: {repeat_label(one.label, one.repeat)}: {one.doubt.message}" for one in state.doubts)
    yield from (f"damaged: {damaged}" for damaged in state.damaged)
    older = " (older than the last runs or the plan)" if state.report_outdated else ""
    if state.recommendation is not None:
        yield f"result{older}: {state.recommendation}"
    if state.report is not None:
        yield f"report: {state.report}"


def _away(sweep: str, head: DetachedHeadState) -> str:
    """Return where a detached head is, or how it ended, and how to follow it."""
    where = head.state or f"gone without a word from {head.place} on {head.host}; the same command goes on"
    where = where if head.code is None else f"ended with exit code {head.code}"
    return f"detached since {head.since}: {where}; accelsweep attach {sweep} shows what it said"


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
