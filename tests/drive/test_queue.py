"""The jobs in Slurm's queue that need the head: set going again, left out, or forgotten by Slurm."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from fake_clock import FakeClock

from accelsweep.config.site import Site
from accelsweep.driver import job_queue as queueing
from accelsweep.driver.job_queue import Queue
from accelsweep.driver.job_retries import HELD_BACK
from accelsweep.driver.snakefile_functions import Sweep
from accelsweep.errors import AccelsweepError
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.stop_reasons import Halt, halt_of, why_not_run
from accelsweep.schedulers import slurm as slurm_queue
from accelsweep.schedulers.protocol import Job
from accelsweep.schedulers.slurm import SlurmEngine

BLOCK = "b0123456789ab"
SLURM = SlurmEngine(Site(name="box", scheduler="slurm"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def queue(example_sweep: SweepFolder, said: list[str], clock: FakeClock) -> Queue:
    return Queue(example_sweep, SLURM, said.append, 30.0, clock)


def pending(number: str, reason: str, block: str = BLOCK) -> Job:
    return Job(number, block, "PENDING", reason, nodes="", elapsed="0:00")


def test_jobs_that_slurm_leaves_standing_are_set_going_again(queue: Queue) -> None:
    rows = [Job("3", "", "PREEMPTED", "None", "", ""), Job("4", "", "NODE_FAIL", "NodeDown", "", "")]
    rows += [pending("5", "launch failed requeued held"), pending("6", "Priority")]
    commands = [command for command, _ in queue.remedies(SLURM, rows)]
    assert commands == [("scontrol", "requeue", "3"), ("scontrol", "requeue", "4"), ("scontrol", "release", "5")]


def test_a_job_that_no_node_can_start_is_given_up(queue: Queue) -> None:
    held = [pending("5", "launch failure limit exceeded requeued held")]
    commands = [command for _ in range(4) for command, _ in queue.remedies(SLURM, held)]
    assert commands == [("scontrol", "release", "5")] * 3 + [("scancel", "5")]
    assert list(queue.remedies(SLURM, [pending("5", "JobHeldUser")])) == [], "somebody's wish"


def test_a_job_that_waits_longer_than_its_limit_is_left_out_and_so_is_the_copy_that_snakemake_submits(
    queue: Queue, clock: FakeClock, example_sweep: SweepFolder
) -> None:
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    first, other = pending("7", "Resources", block), pending("8", "Priority", "bffffffffffff")
    assert list(queue.left_out(SLURM, [first])) == []
    clock.advance(29 * 60)
    assert list(queue.left_out(SLURM, [first, other])) == []
    clock.advance(2 * 60)
    assert [command for command, _ in queue.left_out(SLURM, [first, other])] == [("scancel", "7")]
    assert why_not_run(example_sweep, block) == (
        "its job waited for more than limits.queue_minutes (30) in Slurm's queue, which says: Resources"
    )
    assert [command for command, _ in queue.left_out(SLURM, [pending("9", "Priority", block)])] == [("scancel", "9")]
    assert Sweep(example_sweep, Manifest.read(example_sweep.manifest)).left_out(block), "Snakemake submits no copy"


@pytest.mark.parametrize(("again", "left_out"), [("now", False), ("later", True), ("changed", True)])
def test_a_block_gets_another_job_in_the_same_command_unless_its_halt_says_otherwise(
    example_sweep: SweepFolder, again: Literal["now", "later", "changed"], left_out: bool
) -> None:
    manifest = Manifest.read(example_sweep.manifest)
    sweep, block = Sweep(example_sweep, manifest), manifest.blocks[0].name
    assert not sweep.left_out(block)
    Halt(block=block, why="it was cancelled", again=again).write(example_sweep.halt(block))
    assert sweep.left_out(block) is left_out


def test_without_a_limit_a_job_waits(queue: Queue, clock: FakeClock) -> None:
    queue.minutes = None
    assert list(queue.left_out(SLURM, [pending("7", "Resources")])) == []
    clock.advance(1e6)
    assert list(queue.left_out(SLURM, [pending("7", "Resources")])) == []


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "AssocMaxNodePerJobLimit", "QOSNotAllowed", "InvalidAccount"])
def test_a_reason_that_no_waiting_ends_is_told_once(queue: Queue, said: list[str], reason: str) -> None:
    for _ in range(2):
        queue.tell_of_waiting(SLURM, [pending("7", reason), pending("8", "Priority")])
    assert len(said) == 2
    assert said[1].startswith(f"no waiting ends {reason}: change ")


@pytest.mark.parametrize("reason", ["Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpGRES"])
def test_of_what_waiting_ends_only_the_reason_is_told(
    queue: Queue, said: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_queue, "ask", lambda *_: "12\n")  # another job of the user's runs
    queue.tell_of_waiting(SLURM, [pending("7", reason)])
    assert said == [f"jobs wait in Slurm's queue: 1 x {reason}"]


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
def test_a_job_that_can_never_start_is_left_out_when_its_reason_stands_at_two_looks(
    queue: Queue,
    example_sweep: SweepFolder,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    running: str,
    hopeless: bool,
) -> None:
    """A limit on what one user holds ends no wait where the user holds nothing: the job alone exceeds it."""
    monkeypatch.setattr(slurm_queue, "ask", lambda *_: running)
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    waiting = pending("7", reason, block)
    assert list(queue.left_out(SLURM, [waiting])) == [], "a reason may be of a moment ago"
    assert [command for command, _ in queue.left_out(SLURM, [waiting])] == ([("scancel", "7")] if hopeless else [])
    if hopeless:
        halt = halt_of(example_sweep, block)
        assert halt is not None
        assert halt.again == "changed"
        assert halt.why.startswith(f"its job 7 could never start, for which Slurm says {reason}: change ")


def test_a_reason_that_changes_between_two_looks_leaves_nothing_out(queue: Queue, example_sweep: SweepFolder) -> None:
    block = Manifest.read(example_sweep.manifest).blocks[0].name
    for reason in ("PartitionTimeLimit", "Priority", "PartitionTimeLimit"):
        assert list(queue.left_out(SLURM, [pending("7", reason, block)])) == []


@pytest.mark.parametrize("reason", ["AssocGrpCPUMinutesLimit", "QOSGrpGRESMinutes"])
def test_spent_hours_are_named_and_waited_for(queue: Queue, said: list[str], reason: str) -> None:
    queue.tell_of_waiting(SLURM, [pending("7", reason)])
    assert said[1].startswith("the hours of the account, or of the QOS, are spent")
    assert "change site.slurm.account or qos" in said[1]


def test_a_limit_of_jobs_in_the_queue_is_told_once_with_the_key_that_states_it(
    queue: Queue, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"{number}|RUNNING|None|gpu|n1|0:01|{queue.folder.home}|rule_block_{BLOCK}\n" for number in (7, 8))
    monkeypatch.setattr(slurm_queue, "ask", lambda *_: rows)
    monkeypatch.setattr(SweepFolder, "block_names", lambda _folder: [BLOCK])
    log = "".join(f"{HELD_BACK}{block} (AssocMaxSubmitJobLimit)\n" for block in (BLOCK, "bffffffffffff"))
    for _ in range(2):
        queue.tell_of_limit(SLURM, log)
    (sentence,) = said
    assert "took 2 jobs of the sweep and no further one (AssocMaxSubmitJobLimit)" in sentence
    assert sentence.endswith("site.slurm.max_jobs=2")


SUBMITTED = "rule block:\nJob 1 has been submitted with SLURM jobid 5 (log: x).\n"


def test_jobs_that_slurm_knows_nothing_of_for_a_minute_are_forgotten(queue: Queue, clock: FakeClock) -> None:
    queue.look_for_forgotten(SUBMITTED, [])
    clock.advance(59)
    queue.look_for_forgotten(SUBMITTED, [])
    assert not queue.forgotten
    clock.advance(2)
    assert queue.forgotten
    queue.look_for_forgotten(SUBMITTED, [Job("5", BLOCK, "COMPLETED", "None", "", "")])
    assert not queue.forgotten


@pytest.mark.parametrize(
    "log", ["rule block:\n", f"{SUBMITTED}localrule findings:\n", f"{SUBMITTED}{HELD_BACK}b1 (x)\n"]
)
def test_before_the_first_and_after_the_last_job_nothing_is_forgotten(queue: Queue, clock: FakeClock, log: str) -> None:
    queue.look_for_forgotten(log, [])
    clock.advance(1e6)
    assert not queue.forgotten


def test_another_snakemake_has_the_same_blocks_left_out_and_has_forgotten_none(queue: Queue, clock: FakeClock) -> None:
    queue.look_for_forgotten(SUBMITTED, [])
    list(queue.left_out(SLURM, [pending("7", "Resources")]))
    clock.advance(31 * 60)
    assert list(queue.left_out(SLURM, [pending("7", "Resources")]))
    again = queue.anew()
    assert not again.forgotten
    assert list(again.left_out(SLURM, [pending("8", "Priority")]))


@dataclass(frozen=True)
class Marking(SlurmEngine):
    """An engine with one job, whose cancelling leaves a file of its number."""

    place: Path = Path()

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        assert blocks
        return [pending("7", "Priority")]

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        return ("touch", *(str(self.place / number) for number in numbers))


def test_jobs_that_an_interrupted_snakemake_left_are_cancelled(
    example_sweep: SweepFolder, said: list[str], tmp_path: Path
) -> None:
    Queue(example_sweep, None, said.append).cancel_left()
    Queue(example_sweep, Marking(SLURM.site, place=tmp_path), said.append).cancel_left()
    assert (tmp_path / "7").exists()
    assert said == []


def test_jobs_that_could_not_be_cancelled_are_told_with_the_command_that_does_it(
    example_sweep: SweepFolder, said: list[str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    Queue(example_sweep, Marking(SLURM.site, place=gone), said.append).cancel_left()
    assert "may be left in Slurm's queue (touch failed: " in said[0]
    assert said[0].endswith(f"End them: touch {gone}/7")
    Queue(example_sweep, Silent(SLURM.site), said.append, _known=["7", "8"]).cancel_left()
    assert said[1].endswith("(squeue did not answer within 60 s). End them: scancel 7 8")
    Queue(example_sweep, Silent(SLURM.site), said.append).cancel_left()
    assert said[2].endswith(f"End them: accelsweep status {example_sweep.name} lists them")


class Silent(SlurmEngine):
    """An engine that does not answer."""

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        raise AccelsweepError("squeue did not answer within 60 s")


def test_a_remedy_that_slurm_refuses_keeps_no_other_job_from_its_own_and_is_given_up(
    queue: Queue, said: list[str], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def ask(*command: str) -> str:
        asked.append(command)
        if command[-1] == "3":
            raise AccelsweepError("scontrol failed: Requested operation is presently disabled")
        return ""

    monkeypatch.setattr(queueing, "ask", ask)
    list(queue.left_out(SLURM, [pending("7", "Resources")]))
    clock.advance(31 * 60)
    rows = [Job("3", "", "PREEMPTED", "None", "", ""), Job("4", "", "NODE_FAIL", "NodeDown", "", "")]
    for _ in range(30):
        queue.look_after(SLURM, [*rows, pending("7", "Resources")])
    assert asked.count(("scontrol", "requeue", "3")) == queueing._MOST_REFUSALS
    assert asked.count(("scontrol", "requeue", "4")) == asked.count(("scancel", "7")) == 30
    assert sum("presently disabled (scontrol requeue 3)" in sentence for sentence in said) == 1


@pytest.mark.parametrize("there", ["nothing", "a pipe", "a folder"])
def test_a_log_of_snakemake_that_is_gone_or_no_file_stops_no_head(
    queue: Queue, said: list[str], clock: FakeClock, example_sweep: SweepFolder, there: str
) -> None:
    log = example_sweep.snakemake_log
    log.parent.mkdir(exist_ok=True)
    log.unlink(missing_ok=True)
    if there != "nothing":
        (os.mkfifo if there == "a pipe" else os.mkdir)(log)
    for _ in range(2):
        queue.update()
        clock.advance(60)
    (sentence,) = said
    assert str(log) in sentence


class Listings:
    """A Slurm that lists the same jobs whenever it is asked, and counts how often it was."""

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs, self.asked = jobs, 0

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job]:
        self.asked += 1
        return self.jobs


@pytest.fixture
def listed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Listings:
    listings = Listings([pending("7", "Priority")])
    monkeypatch.setattr(SlurmEngine, "own_jobs", lambda _, *given: listings.own_jobs(*given))
    queue.folder.snakemake_log.parent.mkdir(exist_ok=True)
    queue.folder.snakemake_log.write_text("")
    return listings


def test_while_all_jobs_wait_the_queue_is_asked_once_a_minute(queue: Queue, clock: FakeClock, listed: Listings) -> None:
    for _ in range(2 * 600):
        queue.update()
        clock.advance(0.5)
    assert listed.asked == 10


def test_a_file_that_a_job_leaves_lets_the_queue_be_asked_sooner(
    queue: Queue, clock: FakeClock, listed: Listings
) -> None:
    queue.update()
    clock.advance(20.0)
    queue.update()
    assert listed.asked == 1
    (queue.folder.root / "blocks" / f"{BLOCK}.claim.json").write_text("{}")
    queue.update()
    assert listed.asked == 2
    (queue.folder.root / "blocks" / f"{BLOCK}.done.json").write_text("{}")
    queue.update()
    assert listed.asked == 2, "and yet not more often than every 15 s"
    clock.advance(16.0)
    queue.update()
    assert listed.asked == 3


def test_a_reason_that_no_waiting_ends_is_looked_at_again_after_15_seconds(
    queue: Queue, clock: FakeClock, listed: Listings
) -> None:
    listed.jobs = [pending("7", "InvalidQOS")]
    queue.update()
    clock.advance(14.0)
    queue.update()
    assert listed.asked == 1
    clock.advance(2.0)
    queue.update()
    assert listed.asked == 2


def test_snakemake_is_told_when_a_job_has_changed_and_only_then(
    queue: Queue, clock: FakeClock, listed: Listings
) -> None:
    told = queue.folder.jobs_changed
    queue.update()
    told.unlink()
    clock.advance(61.0)
    queue.update()
    assert not told.exists()
    for jobs in ([Job("7", BLOCK, "RUNNING", "None", "n1", "0:01")], []):
        listed.jobs = jobs
        clock.advance(61.0)
        queue.update()
        told.unlink()
