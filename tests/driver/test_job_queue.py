"""Jobs in Slurm's queue that need the driver: restarted, cancelled, forgotten, or left by an earlier driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from fake_clock import FakeClock

from accelsweep.config.site import Site
from accelsweep.driver import job_queue
from accelsweep.driver.job_queue import JobQueue, wait_for_earlier_jobs
from accelsweep.driver.snakefile_functions import Sweep
from accelsweep.driver.snakemake_hooks import DEFERRED
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.not_run_reasons import Halt, not_run_reason, read_halt
from accelsweep.records.plan import Manifest
from accelsweep.schedulers import slurm
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import SlurmScheduler

BLOCK = "b0123456789ab"
SLURM = SlurmScheduler(Site(name="box", scheduler="slurm"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def queue(example_sweep: SweepFolder, messages: list[str], clock: FakeClock) -> JobQueue:
    return JobQueue(example_sweep, SLURM, messages.append, 30.0, clock)


def pending(number: str, reason: str, block: str = BLOCK) -> Job:
    return Job(number, block, "PENDING", reason, nodes="", elapsed="0:00")


def test_stuck_jobs_are_requeued_or_released(queue: JobQueue) -> None:
    rows = [Job("3", "", "PREEMPTED", "None", "", ""), Job("4", "", "NODE_FAIL", "NodeDown", "", "")]
    rows += [pending("5", "launch failed requeued held"), pending("6", "Priority")]
    commands = [command for command, _ in queue.remedies(rows)]
    assert commands == [("scontrol", "requeue", "3"), ("scontrol", "requeue", "4"), ("scontrol", "release", "5")]


def test_a_job_that_no_node_can_start_is_cancelled_after_some_tries(queue: JobQueue) -> None:
    held = [pending("5", "launch failure limit exceeded requeued held")]
    commands = [command for _ in range(4) for command, _ in queue.remedies(held)]
    assert commands == [("scontrol", "release", "5")] * 3 + [("scancel", "5")]
    assert list(queue.remedies([pending("5", "JobHeldUser")])) == [], "somebody wants that"


def test_a_job_that_waits_too_long_is_cancelled_and_so_is_the_copy_that_snakemake_submits(
    queue: JobQueue, clock: FakeClock, example_sweep: SweepFolder
) -> None:
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    first, other = pending("7", "Resources", block), pending("8", "Priority", "bffffffffffff")
    assert list(queue.cancellations([first])) == []
    clock.advance(29 * 60)
    assert list(queue.cancellations([first, other])) == []
    clock.advance(2 * 60)
    assert [command for command, _ in queue.cancellations([first, other])] == [("scancel", "7")]
    assert not_run_reason(example_sweep, block) == (
        "its job waited for more than limits.queue_minutes (30) in Slurm's queue, which reports: Resources"
    )
    assert [command for command, _ in queue.cancellations([pending("9", "Priority", block)])] == [("scancel", "9")]
    assert Sweep(example_sweep, Manifest.read(example_sweep.manifest)).is_skipped(block), "Snakemake submits no copy"


@pytest.mark.parametrize(("again", "left_out"), [("now", False), ("later", True), ("changed", True)])
def test_a_block_gets_another_job_in_the_same_command_unless_its_halt_says_otherwise(
    example_sweep: SweepFolder, again: Literal["now", "later", "changed"], left_out: bool
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    sweep, block = Sweep(example_sweep, manifest), manifest.blocks[0].name
    assert not sweep.is_skipped(block)
    Halt(block=block, reason="it was cancelled", retry=again).write(example_sweep.halt(block))
    assert sweep.is_skipped(block) is left_out


def test_without_a_limit_a_job_waits(queue: JobQueue, clock: FakeClock) -> None:
    queue.queue_minutes = None
    assert list(queue.cancellations([pending("7", "Resources")])) == []
    clock.advance(1e6)
    assert list(queue.cancellations([pending("7", "Resources")])) == []


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "AssocMaxNodePerJobLimit", "QOSNotAllowed", "InvalidAccount"])
def test_a_reason_that_does_not_end_by_waiting_is_reported_once(
    queue: JobQueue, messages: list[str], reason: str
) -> None:
    for _ in range(2):
        queue.report_waiting([pending("7", reason), pending("8", "Priority")])
    assert len(messages) == 2
    assert messages[1].startswith(f"waiting does not resolve {reason}: change ")


@pytest.mark.parametrize("reason", ["Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpGRES"])
def test_a_reason_that_ends_by_waiting_is_reported_without_advice(
    queue: JobQueue, messages: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "ask", lambda *_: "12\n")  # another job of the user's runs
    queue.report_waiting([pending("7", reason)])
    assert messages == [f"jobs are waiting in Slurm's queue: 1 x {reason}"]


@pytest.mark.parametrize(
    ("reason", "running", "hopeless"),
    [
        ("AssocMaxWallDurationPerJobLimit", "12\n", True),
        ("QOSMinGRES", "12\n", True),
        ("QOSMaxGRESPerUser", "", True),
        ("QOSMaxCpuPerUserLimit", "", True),
        ("QOSMaxGRESPerUser", "12\n", False),
        ("AssocGrpCpuLimit", "", False),
        ("PartitionNodeLimit", "", False),
    ],
)
def test_a_job_that_can_never_start_is_cancelled_if_its_reason_persists_for_two_polls(
    queue: JobQueue,
    example_sweep: SweepFolder,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    running: str,
    hopeless: bool,
) -> None:
    """A per-user limit keeps a job waiting for ever if the user has no other job: the job alone exceeds it."""
    monkeypatch.setattr(slurm, "ask", lambda *_: running)
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    waiting = pending("7", reason, block)
    assert list(queue.cancellations([waiting])) == [], "a reason may be stale"
    assert [command for command, _ in queue.cancellations([waiting])] == ([("scancel", "7")] if hopeless else [])
    if hopeless:
        halt = read_halt(example_sweep, block)
        assert halt is not None
        assert halt.retry == "changed"
        assert halt.reason.startswith(f"its job 7 can never start, Slurm reports {reason}: change ")


def test_a_reason_that_changes_between_two_polls_cancels_nothing(queue: JobQueue, example_sweep: SweepFolder) -> None:
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    for reason in ("PartitionTimeLimit", "Priority", "PartitionTimeLimit"):
        assert list(queue.cancellations([pending("7", reason, block)])) == []


@pytest.mark.parametrize("reason", ["AssocGrpCPUMinutesLimit", "QOSGrpGRESMinutes"])
def test_spent_compute_hours_are_reported_and_waited_for(queue: JobQueue, messages: list[str], reason: str) -> None:
    queue.report_waiting([pending("7", reason)])
    assert messages[1].startswith("the account or QOS has used up its hours")
    assert "change site.slurm.account or qos" in messages[1]


def test_a_limit_on_queued_jobs_is_reported_once_with_the_key_that_sets_it(
    queue: JobQueue, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{number}|RUNNING|None|gpu|n1|0:01|{queue.folder.home}|rule_block_{BLOCK}\n" for number in (7, 8))
    monkeypatch.setattr(slurm, "ask", lambda *_: rows)
    monkeypatch.setattr(SweepFolder, "block_names", lambda _folder: [BLOCK])
    log = "".join(f"{DEFERRED}{block} (AssocMaxSubmitJobLimit)\n" for block in (BLOCK, "bffffffffffff"))
    for _ in range(2):
        queue.report_limit(log)
    (sentence,) = messages
    assert "accepted 2 jobs of the sweep and refuses more (AssocMaxSubmitJobLimit)" in sentence
    assert sentence.endswith("site.slurm.max_jobs=2")


SUBMITTED = "rule block:\nJob 1 has been submitted with SLURM jobid 5 (log: x).\n"


def test_jobs_unknown_to_slurm_for_a_minute_are_forgotten(queue: JobQueue, clock: FakeClock) -> None:
    queue.detect_forgotten(SUBMITTED, [])
    clock.advance(59)
    queue.detect_forgotten(SUBMITTED, [])
    assert not queue.forgotten
    clock.advance(2)
    assert queue.forgotten
    queue.detect_forgotten(SUBMITTED, [Job("5", BLOCK, "COMPLETED", "None", "", "")])
    assert not queue.forgotten


@pytest.mark.parametrize(
    "log", ["rule block:\n", f"{SUBMITTED}localrule findings:\n", f"{SUBMITTED}{DEFERRED}b1 (x)\n"]
)
def test_nothing_is_forgotten_before_the_first_and_after_the_last_job(
    queue: JobQueue, clock: FakeClock, log: str
) -> None:
    queue.detect_forgotten(log, [])
    clock.advance(1e6)
    assert not queue.forgotten


def test_the_next_snakemake_skips_the_same_blocks_and_has_forgotten_none(queue: JobQueue, clock: FakeClock) -> None:
    queue.detect_forgotten(SUBMITTED, [])
    list(queue.cancellations([pending("7", "Resources")]))
    clock.advance(31 * 60)
    assert list(queue.cancellations([pending("7", "Resources")]))
    again = queue.for_next_snakemake()
    assert not again.forgotten
    assert list(again.cancellations([pending("8", "Priority")]))


@dataclass(frozen=True)
class OneJob(SlurmScheduler):
    """A scheduler with one job; cancelling it creates a file named after its number."""

    place: Path = Path()

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        assert blocks
        return [pending("7", "Priority")]

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        return ("touch", *(str(self.place / number) for number in numbers))


def test_jobs_left_by_an_interrupted_snakemake_are_cancelled(
    example_sweep: SweepFolder, messages: list[str], tmp_path: Path
) -> None:
    JobQueue(example_sweep, OneJob(SLURM.site, place=tmp_path), messages.append).cancel()
    assert (tmp_path / "7").exists()
    assert messages == []


def test_jobs_that_cannot_be_cancelled_are_reported_with_the_command_to_do_it(
    example_sweep: SweepFolder, messages: list[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    JobQueue(example_sweep, OneJob(SLURM.site, place=gone), messages.append).cancel()
    assert "may still be in Slurm's queue (touch failed: " in messages[0]
    assert messages[0].endswith(f"Cancel them: touch {gone}/7")
    JobQueue(example_sweep, Unreachable(SLURM.site), messages.append, _known=["7", "8"]).cancel()
    assert messages[1].endswith("(squeue did not answer within 60 s). Cancel them: scancel 7 8")
    JobQueue(example_sweep, Unreachable(SLURM.site), messages.append).cancel()
    assert messages[2].endswith(f"Cancel them: accelsweep status {example_sweep.name} lists them")


class Unreachable(SlurmScheduler):
    """A scheduler that does not answer."""

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        raise AccelsweepError("squeue did not answer within 60 s")


def test_a_refused_remedy_does_not_block_others_and_is_given_up(
    queue: JobQueue, messages: list[str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        if command[-1] == "3":
            raise AccelsweepError("scontrol failed: Requested operation is presently disabled")
        return ""

    monkeypatch.setattr(job_queue, "ask", ask)
    list(queue.cancellations([pending("7", "Resources")]))
    clock.advance(31 * 60)
    rows = [Job("3", "", "PREEMPTED", "None", "", ""), Job("4", "", "NODE_FAIL", "NodeDown", "", "")]
    for _ in range(30):
        queue.handle([*rows, pending("7", "Resources")])
    assert asked.count(("scontrol", "requeue", "3")) == job_queue._MAX_TRIES
    assert asked.count(("scontrol", "requeue", "4")) == asked.count(("scancel", "7")) == 30
    assert sum("presently disabled (scontrol requeue 3)" in sentence for sentence in messages) == 1


@pytest.mark.parametrize("there", ["nothing", "a pipe", "a folder"])
def test_an_unreadable_snakemake_log_does_not_end_the_sweep(
    queue: JobQueue, messages: list[str], clock: FakeClock, example_sweep: SweepFolder, there: str
) -> None:
    log = example_sweep.snakemake_log
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    if there != "nothing":
        (os.mkfifo if there == "a pipe" else os.mkdir)(log)
    for _ in range(2):
        queue.update()
        clock.advance(60)
    (sentence,) = messages
    assert str(log) in sentence


class FixedListing:
    """A Slurm that lists the same jobs at each poll, and counts the polls."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs, self.polls = jobs, 0

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job]:
        self.polls += 1
        return self.jobs


@pytest.fixture
def listed(queue: JobQueue, monkeypatch: pytest.MonkeyPatch) -> FixedListing:
    listings = FixedListing([pending("7", "Priority")])
    monkeypatch.setattr(SlurmScheduler, "own_jobs", lambda _, *given: listings.own_jobs(*given))
    queue.folder.snakemake_log.parent.mkdir(exist_ok=True)
    queue.folder.snakemake_log.write_text("")
    return listings


def test_while_all_jobs_wait_the_queue_is_polled_once_a_minute(
    queue: JobQueue, clock: FakeClock, listed: FixedListing
) -> None:
    for _ in range(2 * 600):
        queue.update()
        clock.advance(0.5)
    assert listed.polls == 10


def test_a_new_file_of_a_job_triggers_an_earlier_poll(queue: JobQueue, clock: FakeClock, listed: FixedListing) -> None:
    queue.update()
    clock.advance(20.0)
    queue.update()
    assert listed.polls == 1
    (queue.folder.root / "blocks" / f"{BLOCK}.lock.json").write_text("{}")
    queue.update()
    assert listed.polls == 2
    (queue.folder.root / "blocks" / f"{BLOCK}.done.json").write_text("{}")
    queue.update()
    assert listed.polls == 2, "and yet not more often than every 15 s"
    clock.advance(16.0)
    queue.update()
    assert listed.polls == 3


def test_a_hopeless_reason_is_polled_again_after_15_seconds(
    queue: JobQueue, clock: FakeClock, listed: FixedListing
) -> None:
    listed.jobs = [pending("7", "InvalidQOS")]
    queue.update()
    clock.advance(14.0)
    queue.update()
    assert listed.polls == 1
    clock.advance(2.0)
    queue.update()
    assert listed.polls == 2


def test_snakemake_is_notified_exactly_when_a_job_has_changed(
    queue: JobQueue, clock: FakeClock, listed: FixedListing
) -> None:
    changed = queue.folder.jobs_changed
    queue.update()
    changed.unlink()
    clock.advance(61.0)
    queue.update()
    assert not changed.exists()
    for jobs in ([Job("7", BLOCK, "RUNNING", "None", "n1", "0:01")], []):
        listed.jobs = jobs
        clock.advance(61.0)
        queue.update()
        changed.unlink()


HELD = "launch failed requeued held"
UNREACHABLE = AccelsweepError("squeue failed: Socket timed out on send/recv operation")


@dataclass
class EarlierJobs:
    """The jobs of an earlier driver, without cancelled ones. `between_polls` is called, and `error` raised."""

    jobs: list[Job]
    clock: FakeClock
    between_polls: Callable[[EarlierJobs], None] = lambda _earlier: None
    commands: list[tuple[str, ...]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    error: AccelsweepError | None = None

    def ask(self, *command: str) -> str:
        self.commands.append(command)
        if command[0] == "scancel":
            self.jobs = [job for job in self.jobs if job.number not in command]
        return ""

    def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        assert self.clock.now < 10_000, "the driver waits for ever"
        self.between_polls(self)

    def end(self, number: str) -> None:
        self.jobs = [job for job in self.jobs if job.number != number]


@dataclass(frozen=True)
class EarlierSlurm(SlurmScheduler):
    """A Slurm with these jobs."""

    earlier: EarlierJobs = field(kw_only=True)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        if self.earlier.error is not None:
            raise self.earlier.error
        return list(self.earlier.jobs)


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> EarlierJobs:
    made = EarlierJobs([], FakeClock())
    monkeypatch.setattr(job_queue, "ask", made.ask)
    monkeypatch.setattr(job_queue.time, "sleep", made.sleep)
    return made


@pytest.fixture
def earlier_queue(example_sweep: SweepFolder, earlier: EarlierJobs) -> JobQueue:
    scheduler = EarlierSlurm(Site(name="box", scheduler="slurm"), earlier=earlier)
    return JobQueue(example_sweep, scheduler, earlier.messages.append, 30.0, earlier.clock)


@pytest.fixture
def block(example_sweep: SweepFolder) -> str:
    return Manifest.read(example_sweep.manifest).blocks[0].name


def running(number: str, block: str) -> Job:
    return Job(number, block, "RUNNING", "None", "n1", "1:00")


def test_an_earlier_job_that_cannot_start_is_released_and_finally_cancelled(earlier_queue, earlier, block) -> None:
    earlier.jobs = [pending("5", HELD, block)]
    wait_for_earlier_jobs(earlier_queue, cancel=False)
    assert earlier.commands == [("scontrol", "release", "5")] * 3 + [("scancel", "5")]


def test_a_hopeless_earlier_job_is_cancelled_at_once_and_a_running_one_is_waited_for(
    earlier_queue, earlier, block
) -> None:
    earlier.jobs = [pending("5", "PartitionTimeLimit", block), running("6", block)]
    earlier.between_polls = lambda this: this.end("6") if this.clock.now > 400 else None
    wait_for_earlier_jobs(earlier_queue, cancel=False)
    assert earlier.commands == [("scancel", "5")]
    assert "job 5 of an earlier driver: waiting does not resolve PartitionTimeLimit; cancelled" in earlier.messages


def test_an_earlier_job_that_waits_too_long_is_cancelled_and_so_is_its_later_copy(
    earlier_queue, earlier, block, example_sweep
) -> None:
    earlier.jobs = [pending("5", "Resources", block)]
    wait_for_earlier_jobs(earlier_queue, cancel=False)
    assert earlier.commands == [("scancel", "5")]
    assert earlier.clock.now == pytest.approx(100 + 30 * 60 + job_queue._EARLIER_POLL_SECONDS)
    example_sweep.halt(block).unlink()  # the driver deletes halt files before it submits
    assert list(earlier_queue.for_next_snakemake().cancellations([pending("9", "Priority", block)]))
    assert "more than limits.queue_minutes (30)" in not_run_reason(example_sweep, block)


def test_changes_of_why_earlier_jobs_wait_are_reported(earlier_queue, earlier, block) -> None:
    earlier.jobs = [pending("5", "Resources", block)]
    earlier.between_polls = lambda this: setattr(
        this, "jobs", [pending("5", "Priority", block)] if this.clock.now < 200 else []
    )
    wait_for_earlier_jobs(earlier_queue, cancel=False)
    assert [message for message in earlier.messages if message.startswith("jobs are waiting")] == [
        "jobs are waiting in Slurm's queue: 1 x Resources",
        "jobs are waiting in Slurm's queue: 1 x Priority",
    ]


def test_after_the_time_budget_no_earlier_job_starts_and_the_running_one_ends_its_run(
    earlier_queue, earlier, block, example_sweep
) -> None:
    earlier.jobs = [pending("5", "Resources", block), running("6", block)]
    earlier.between_polls = lambda this: this.end("6") if example_sweep.stop.exists() else None
    wait_for_earlier_jobs(earlier_queue, cancel=False, deadline=earlier.clock.now + 60)
    assert earlier.commands == [("scancel", "5")]
    assert earlier.clock.now == pytest.approx(160 + job_queue._EARLIER_POLL_SECONDS)
    assert earlier.messages.count("the time budget is spent: no further runs will be started") == 1


@pytest.mark.parametrize("cancel", [True, False])
def test_an_unreachable_slurm_is_reported_once_and_retried_for_some_minutes(
    earlier_queue, earlier, block, cancel
) -> None:
    def between_polls(this: EarlierJobs) -> None:
        this.error = UNREACHABLE if this.clock.now < 700 else None
        this.jobs = [] if this.clock.now > 900 else this.jobs

    earlier.jobs, earlier.between_polls, earlier.error = [running("6", block)], between_polls, UNREACHABLE
    polls: list[float] = []
    wait_for_earlier_jobs(earlier_queue, cancel=cancel, on_poll=lambda: polls.append(earlier.clock.now))
    assert sum("Socket timed out" in sentence for sentence in earlier.messages) == 1
    assert len(polls) > 100, "the driver's heartbeat is renewed meanwhile"


def test_a_slurm_that_never_answers_is_an_error(earlier_queue, earlier) -> None:
    earlier.error = UNREACHABLE
    with pytest.raises(AccelsweepError, match="Socket timed out"):
        wait_for_earlier_jobs(earlier_queue, cancel=False)
    assert earlier.clock.now == pytest.approx(100 + job_queue._UNREACHABLE_SECONDS)
