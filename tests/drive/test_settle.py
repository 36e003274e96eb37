"""A head and the jobs of an earlier one: looked after, given up, and waited for while Slurm does not answer."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_clock import FakeClock

from accelsweep.config.site import Site
from accelsweep.driver import job_queue as queueing
from accelsweep.driver.job_queue import Queue, settle_old_jobs
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.stop_reasons import why_not_run
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import SlurmEngine

HELD = "launch failed requeued held"
SILENT = AccelsweepError("squeue failed: Socket timed out on send/recv operation")


@dataclass
class Left:
    """The jobs of an earlier head: cancelled ones are gone. Between two looks `then` happens; a `silence` is raised."""

    jobs: list[Job]
    clock: FakeClock
    then: Callable[[Left], None] = lambda _left: None
    commands: list[tuple[str, ...]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    silence: AccelsweepError | None = None

    def ask(self, *command: str) -> str:
        self.commands.append(command)
        if command[0] == "scancel":
            self.jobs = [job for job in self.jobs if job.number not in command]
        return ""

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(seconds)
        assert self.clock.now < 10_000, "the head waits without end"
        self.then(self)

    def end(self, number: str) -> None:
        self.jobs = [job for job in self.jobs if job.number != number]


@dataclass(frozen=True)
class Listing(SlurmEngine):
    """Slurm with these jobs."""

    left: Left = field(kw_only=True)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        if self.left.silence is not None:
            raise self.left.silence
        return list(self.left.jobs)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Left:
    made = Left([], FakeClock())
    for module in (queueing, queueing):
        monkeypatch.setattr(module, "ask", made.ask)
    monkeypatch.setattr(queueing.time, "sleep", made.pass_by)
    return made


@pytest.fixture
def queue(example_sweep: SweepFolder, left: Left) -> Queue:
    engine = Listing(Site(name="box", scheduler="slurm"), left=left)
    return Queue(example_sweep, engine, left.said.append, 30.0, left.clock)


@pytest.fixture
def block(example_sweep: SweepFolder) -> str:
    return Manifest.read(example_sweep.manifest).blocks[0].name


def waiting(number: str, reason: str, block: str) -> Job:
    return Job(number, block, "PENDING", reason, "", "0:00")


def running(number: str, block: str) -> Job:
    return Job(number, block, "RUNNING", "None", "n1", "1:00")


def test_an_old_job_that_could_not_be_started_is_released_and_at_last_cancelled(queue, left, block) -> None:
    left.jobs = [waiting("5", HELD, block)]
    settle_old_jobs(queue, cancel=False)
    assert left.commands == [("scontrol", "release", "5")] * 3 + [("scancel", "5")]


def test_an_old_job_that_no_waiting_starts_is_cancelled_at_once_and_the_running_one_waited_for(
    queue, left, block
) -> None:
    left.jobs = [waiting("5", "PartitionTimeLimit", block), running("6", block)]
    left.then = lambda this: this.end("6") if this.clock.now > 400 else None
    settle_old_jobs(queue, cancel=False)
    assert left.commands == [("scancel", "5")]
    assert "job 5 of an earlier head: no waiting ends PartitionTimeLimit; cancelled" in left.said
    assert not any("press Ctrl-C" in sentence for sentence in left.said)


def test_an_old_job_that_waits_too_long_is_left_out_and_so_is_the_copy_that_the_head_submits(
    queue, left, block, example_sweep
) -> None:
    left.jobs = [waiting("5", "Resources", block)]
    settle_old_jobs(queue, cancel=False)
    assert left.commands == [("scancel", "5")]
    assert left.clock.now == pytest.approx(100 + 30 * 60 + queueing._LOOK_SECONDS)
    example_sweep.halt(block).unlink()  # the head clears such files away before it submits
    assert [command for command, _ in queue.anew().left_out(queue.engine, [waiting("9", "Priority", block)])]
    assert "more than limits.queue_minutes (30)" in why_not_run(example_sweep, block)


def test_why_old_jobs_wait_is_told_whenever_it_changes(queue, left, block) -> None:
    left.jobs = [waiting("5", "Resources", block)]
    left.then = lambda this: setattr(this, "jobs", [waiting("5", "Priority", block)] if this.clock.now < 200 else [])
    settle_old_jobs(queue, cancel=False)
    assert [said for said in left.said if said.startswith("jobs wait")] == [
        "jobs wait in Slurm's queue: 1 x Resources",
        "jobs wait in Slurm's queue: 1 x Priority",
    ]


def test_with_the_time_budget_spent_no_old_job_begins_and_the_running_one_ends_its_run(
    queue, left, block, example_sweep
) -> None:
    left.jobs = [waiting("5", "Resources", block), running("6", block)]
    left.then = lambda this: this.end("6") if example_sweep.stop.exists() else None
    settle_old_jobs(queue, cancel=False, deadline=left.clock.now + 60)
    assert left.commands == [("scancel", "5")]
    assert left.clock.now == pytest.approx(160 + queueing._LOOK_SECONDS)
    assert left.said.count("the time budget is spent: no further run is started") == 1


@pytest.mark.parametrize("cancel", [True, False])
def test_a_slurm_that_does_not_answer_for_some_minutes_is_told_once_and_asked_again(queue, left, block, cancel) -> None:
    def then(this: Left) -> None:
        this.silence = SILENT if this.clock.now < 700 else None
        this.jobs = [] if this.clock.now > 900 else this.jobs

    left.jobs, left.then, left.silence = [running("6", block)], then, SILENT
    looks: list[float] = []
    settle_old_jobs(queue, cancel=cancel, watch=lambda: looks.append(left.clock.now))
    assert sum("Socket timed out" in sentence for sentence in left.said) == 1
    assert len(looks) > 100, "the head's hold is renewed meanwhile"


def test_a_slurm_that_never_answers_is_given_up(queue, left) -> None:
    left.silence = SILENT
    with pytest.raises(AccelsweepError, match="Socket timed out"):
        settle_old_jobs(queue, cancel=False)
    assert left.clock.now == pytest.approx(100 + queueing._SILENCE_SECONDS)
