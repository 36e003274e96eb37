"""Faults of everything above the supervisor: whatever is killed, damaged or missing, the same command completes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from home import TINY, Home
from ledger import HeadLedger, damage, mounted, until
from patience import PATIENCE_SECONDS

from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Manifest
from accelsweep.core.record import Record, steps_damage

pytestmark = pytest.mark.real

Inject = Callable[[str], None]

ALL = ("cli", "snakemake", "publisher", "supervisor")
KILLS = {"all of them": ALL, "the publisher": ("publisher",), "the supervisor": ("supervisor",)}
KILLS |= {"the CLI": ("cli",), "Snakemake": ("snakemake",)}
COMMANDS = (("all of them",), ("the publisher", "the supervisor", "Snakemake"))
"""Who is killed in which command of a storm: one goes on without its publisher, so that more can be killed in it."""

STEADY = ("repeats=3", "measure.min_seconds=0.3", "measure.max_steps=2000")
ONE_RUN = ("repeats=1", "batch_size=16", "model._target_=mine.Slow")

MINE = """\
import os, time
from accelsweep.workloads.digits import Digits
from accelsweep.workloads.models import SmallCNN


class Hanging(Digits):
    def train_dataloader(self):
        time.sleep(1000)


class Slow(SmallCNN):
    def training_step(self, batch, batch_index):
        time.sleep(0.05)
        return super().training_step(batch, batch_index)


class Dying(SmallCNN):
    def training_step(self, batch, batch_index):
        if os.environ["RANK"] == "1" and batch_index == 5:
            os._exit(9)
        return super().training_step(batch, batch_index)
"""

BOTH = "{when:{model._target_:mine.Dying,data._target_:mine.Hanging},because:one_fault_at_a_time}"


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HeadLedger, list[str]]]:
    """A sweep that was completed through a storm of kills, and which of these found a living process."""
    folder = tmp_path_factory.mktemp("storm")
    home = Home(folder / "home", ACCELSWEEP_LEASES=str(folder / "leases"))
    home.experiment("tiny", TINY)
    ledger, dice = HeadLedger(home, *STEADY), random.Random(4)
    hits = []
    for victims in COMMANDS:
        struck = ledger.strike(dice, *(KILLS[victim] for victim in victims), within_seconds=6.0 / len(victims))
        hits += [victim for victim, hit in zip(victims, struck, strict=True) if hit]
    ledger.complete()
    yield ledger, hits
    home.end_processes()


@pytest.fixture
def ledger(storm: tuple[HeadLedger, list[str]], tmp_path: Path) -> HeadLedger:
    """A copy of that sweep that a test may go on with."""
    shutil.copytree(storm[0].home.path, tmp_path / "home", copy_function=shutil.copy2)
    copy = HeadLedger(Home(tmp_path / "home", ACCELSWEEP_LEASES=str(tmp_path / "leases")), *STEADY)
    copy.look()
    return copy


def test_kills_of_every_process_one_after_another_lose_nothing(
    storm: tuple[HeadLedger, list[str]], inject: Inject
) -> None:
    ledger, hits = storm
    ledger.check()
    assert hits
    for victim in hits:
        inject(f"SIGKILL of {victim}")


def test_a_second_head_is_refused_and_a_supervisor_that_outlived_its_head_is_waited_for(
    home: Home, inject: Inject
) -> None:
    home.module("mine", MINE)
    ledger = HeadLedger(home, *ONE_RUN, "measure.min_steps=240", "measure.max_steps=240")
    head = home.start(*ledger.command)
    until(ledger.running)
    planned = ledger.folder.manifest.read_bytes()
    refused = home.accelsweep("run", "experiment=tiny")
    assert refused.returncode == 1, refused.stdout
    assert "--cancel-old" in refused.stdout
    assert ledger.folder.manifest.read_bytes() == planned, "a refused command changed the plan of another"
    head.kill()
    head.wait()
    (orphan,) = home.supervisors()
    ledger.complete()
    assert [record.attempt for record in ledger.records()] == [1], f"the run of orphan {orphan} was not waited for"
    inject("orphan supervisor waited for")


@pytest.mark.long  # tests/drive/test_head.py ends heads and orphans; only here they are a whole road's
def test_cancel_old_ends_the_living_head_and_its_supervisor(home: Home, inject: Inject) -> None:
    home.module("mine", MINE)
    ledger = HeadLedger(home, *ONE_RUN)
    head = home.start(*ledger.command, "measure.min_steps=100000", "measure.max_steps=100000")
    until(ledger.running)
    output = ledger.complete("--cancel-old")
    assert f"sending SIGINT to process {head.pid}" in output
    assert head.wait(PATIENCE_SECONDS) == 130
    inject("living head ended by --cancel-old")


@pytest.mark.long  # faults/test_supervisor_faults.py and publish/test_follow.py meet each; here they meet in one road
def test_what_hangs_dies_or_does_not_answer_costs_its_own_row_only(home: Home, inject: Inject) -> None:
    home.module("mine", MINE)
    home.environment["MLFLOW_TRACKING_URI"] = "http://me:hunter2@127.0.0.1:9"
    digits, small = "accelsweep.workloads.digits.Digits", "accelsweep.workloads.models.SmallCNN"
    result = home.accelsweep(
        "run", "experiment=tiny", "batch_size=16", "repeats=1", "devices=2", f"model._target_={small},mine.Dying",
        f"data._target_={digits},mine.Hanging", f"exclude=[{BOTH}]", "limits.run_seconds=20", "limits.retries=0",
    )  # fmt: skip
    assert result.returncode == 1, result.stdout
    ledger = HeadLedger(home)
    outcomes = {one.axes["data._target_"] + one.axes["model._target_"]: one for one in ledger.records()}
    assert outcomes[digits + small].outcome is Outcome.measured, outcomes
    assert outcomes["mine.Hanging" + small].outcome is Outcome.timed_out
    assert "limits.run_seconds" in str(outcomes["mine.Hanging" + small].reason)
    dead = outcomes[digits + "mine.Dying"]
    assert dead.outcome is Outcome.crashed
    assert "rank 1 ended with exit code 9" in str(dead.reason)
    assert result.stdout.count("MLflow has not got everything (MLflow at http://***@127.0.0.1:9") == 1
    assert "accelsweep publish tiny" in result.stdout
    assert "hunter2" not in result.stdout + ledger.logs()
    assert (ledger.folder.report / "index.html").exists()
    for what in ("hung data loader", "rank that dies in a collective", "MLflow unreachable"):
        inject(what)


DAMAGES = ("record", "done file", "block", "manifest", "run folder", "steps")


def spoil(ledger: HeadLedger, what: str, dice: random.Random) -> None:
    """Damage or delete one thing, and forget the runs that it costs."""
    folder = ledger.folder
    run = dice.choice(sorted(ledger.finished))
    block = dice.choice(Manifest.read(folder.manifest).blocks).name if what != "manifest" else ""
    if what == "run folder":
        shutil.rmtree(folder.run(run))
    else:
        files = {"record": folder.record(run), "done file": folder.done(block), "block": folder.block(block)}
        damage((files | {"manifest": folder.manifest, "steps": folder.steps(run)})[what], dice)
    for name in list(ledger.finished):
        try:
            spoilt = steps_damage(Record.read(folder.record(name)), folder.steps(name)) is not None
        except Exception:  # noqa: BLE001 - a bit may be flipped anywhere
            spoilt = True
        if spoilt:
            del ledger.finished[name]


@pytest.mark.long  # plan/test_make.py and supervise/test_supervisor.py meet each damage; here one road meets all
def test_damaged_and_deleted_files_are_never_used_and_cost_their_own_runs_only(
    ledger: HeadLedger, inject: Inject
) -> None:
    dice = random.Random(1)
    for what in ("record", "done file", "block", "run folder", "steps", "manifest"):
        spoil(ledger, what, dice)
        inject(f"damaged {what}")
    assert len(ledger.finished) >= 3
    ledger.complete()


def test_a_read_only_folder_is_a_clear_error(ledger: HeadLedger) -> None:
    with mounted(ledger.home.path, "ro"):
        result = ledger.home.accelsweep(*ledger.command)
    assert result.returncode == 1
    assert "Read-only file system" in result.stdout
    assert str(ledger.home.path) in result.stdout
    assert "Traceback" not in result.stdout
    ledger.look()


def test_a_full_disk_is_a_clear_error_and_loses_nothing(ledger: HeadLedger, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    with mounted(small, "size=40m"):
        shutil.copytree(ledger.home.path, small, dirs_exist_ok=True, copy_function=shutil.copy2)
        ballast = small / "ballast"
        fill(ballast)
        there = HeadLedger(Home(small, ACCELSWEEP_LEASES=str(tmp_path / "leases")), *STEADY)
        there.look()
        assert there.finished == ledger.finished
        result = there.home.accelsweep(*there.command, "--add-repeats", "1")
        assert result.returncode == 1
        assert f"No space left on device: '{there.folder.root}" in result.stdout
        assert "make room" in result.stdout
        assert "Traceback" not in result.stdout
        there.look()


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("victim", KILLS)
@pytest.mark.parametrize("seed", range(4))
def test_a_longer_storm_loses_nothing(home: Home, inject: Inject, victim: str, seed: int) -> None:
    ledger, dice = HeadLedger(home, *STEADY), random.Random(f"{victim} {seed}")
    for _ in range(5):
        if any(ledger.strike(dice, KILLS[victim], within_seconds=dice.choice([0.5, 6.0, 15.0]))):
            inject(f"SIGKILL of {victim}")
    ledger.complete()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("seed", range(5))
def test_any_damage_costs_its_own_runs_only(ledger: HeadLedger, inject: Inject, what: str, seed: int) -> None:
    spoil(ledger, what, random.Random(seed))
    inject(f"damaged {what}")
    ledger.complete()
