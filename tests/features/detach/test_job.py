"""A background driver's job: how it starts, and what it leaves when it ends or is evicted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accelsweep.config.site import Site
from accelsweep.driver.run_sweep import Request
from accelsweep.driver.sweep_lock import lock_sweep
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, InputError
from accelsweep.features.detach import command as handing
from accelsweep.features.detach import job as carrying
from accelsweep.features.detach.job import BackgroundCommand, DriverOrder
from accelsweep.features.detach.places import (
    DriverExit,
    StartedDriver,
    Whereabouts,
    detached,
    driver_exit_code,
    driver_log,
    started_driver,
)
from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.planning.plan import make_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.schedulers.protocol import Job
from accelsweep.signals import DriverEvicted, JobCancelled

RUNNING = Job("11", "b0123456789ab", "RUNNING", "None", "n1", "1:00")
ASKED = ("experiment=quickstart", "accelerator=cpu", "devices=1", "batch_size=32", "precision=32-true")
DETACHED = Request(ASKED, features={"detach": True})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "leases"))
    return SweepFolder(tmp_path, "mine")


@pytest.fixture
def ordered(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    """A sweep on a cluster whose driver has an order, in a process whose signals stay as they are."""
    site = Site(name="box", scheduler="slurm")
    order = DriverOrder(request=Request(ASKED, time_budget="1h"), site=site, sweeps=("mine",), revision=1)
    order.write(folder.driver_file("order"))
    for name in ("raise_on_eviction", "ignore_eviction"):
        monkeypatch.setattr(carrying, name, lambda *_: None)
    return folder


def carried(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, does: Callable[[], int]) -> int:
    monkeypatch.setattr(carrying, "_done", lambda _folder, _order: does())
    return carrying.carry_on(folder)


def raising(error: BaseException) -> Callable[[], int]:
    def do() -> int:
        raise error

    return do


@pytest.mark.parametrize(
    ("does", "code"),
    [
        (lambda: 3, 3),
        (raising(InputError("no such key")), 2),
        (raising(KeyboardInterrupt()), EXIT_INTERRUPTED),
        (raising(JobCancelled()), EXIT_INTERRUPTED),
    ],
    ids=["regression", "wrong input", "ctrl-c", "cancelled job"],
)
def test_the_end_of_a_head_is_noted_for_who_follows_it_and_the_order_is_gone(ordered, monkeypatch, does, code) -> None:
    assert carried(ordered, monkeypatch, does) == code
    assert driver_exit_code(ordered) == code
    assert not ordered.driver_file("order").exists()


def test_a_head_that_fails_by_a_fault_of_ours_has_ended_too(ordered, monkeypatch) -> None:
    with pytest.raises(ZeroDivisionError):
        carried(ordered, monkeypatch, lambda: 1 // 0)
    assert driver_exit_code(ordered) == 1


def test_a_head_that_is_told_no_sweep_says_how_it_is_called(monkeypatch, capsys) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr("sys.argv", ["carry_on"])
    monkeypatch.setattr(carrying.signal, "signal", lambda *_: None)
    monkeypatch.setattr(carrying, "interrupt_on_termination", lambda: None)
    with pytest.raises(SystemExit) as ended:
        carrying.main()
    assert ended.value.code == 2
    assert "python -m accelsweep.features.detach.job [-h] sweeps/NAME" in capsys.readouterr().err


def test_an_order_that_is_damaged_is_refused_by_name(ordered, monkeypatch, capsys) -> None:
    ordered.driver_file("order").write_text("[")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr("sys.argv", ["carry_on", str(ordered.root)])
    monkeypatch.setattr(carrying.signal, "signal", lambda *_: None)
    monkeypatch.setattr(carrying, "interrupt_on_termination", lambda: None)
    with pytest.raises(SystemExit) as ended:
        carrying.main()
    assert ended.value.code == 1
    assert "head.order.json" in capsys.readouterr().err


def test_a_head_that_is_preempted_keeps_its_order_for_the_next_start(ordered, monkeypatch) -> None:
    assert carried(ordered, monkeypatch, raising(DriverEvicted(resubmit=False))) == 0
    assert driver_exit_code(ordered) is None
    assert DriverOrder.read(ordered.driver_file("order")).starts == 1


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], str, str | None]]:
    """The jobs of drivers that were submitted: command, name, and the job that each follows."""
    found: list[tuple[Sequence[str], str, str | None]] = []

    def start(_job: Any, _folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        found.append((command, name, after))
        return "13"

    monkeypatch.setattr(carrying.DriverJob, "start", start)
    monkeypatch.setattr(carrying.DriverJob, "check", lambda *_: None)
    monkeypatch.setattr(carrying, "list_jobs", lambda _folder, _engine: [RUNNING])
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    return found


def test_a_head_whose_time_is_up_submits_the_next_one_after_itself(ordered, monkeypatch, submitted) -> None:
    assert carried(ordered, monkeypatch, raising(DriverEvicted(resubmit=True))) == 0
    ((command, name, after),) = submitted
    assert (command[-1], name, after) == (str(ordered.root), "accelsweep-head-mine", "12")
    assert started_driver(ordered).name == "13"
    assert driver_exit_code(ordered) is None
    left = DriverOrder.read(ordered.driver_file("order"))
    assert (left.starts, left.request.time_budget) == (1, "3600s")


@pytest.mark.parametrize("left", [[], [replace(RUNNING, state="PENDING", reason="PartitionTimeLimit", nodes="")]])
def test_a_chain_whose_head_saw_nothing_move_ends(ordered, monkeypatch, submitted, left) -> None:
    monkeypatch.setattr(carrying, "list_jobs", lambda _folder, _engine: left)
    assert carried(ordered, monkeypatch, raising(DriverEvicted(resubmit=True))) == 1
    assert submitted == []
    assert driver_exit_code(ordered) == 1
    assert not ordered.driver_file("order").exists()


def test_a_slurm_that_is_away_for_some_seconds_ends_no_chain(ordered, monkeypatch, submitted, capsys) -> None:
    monkeypatch.setattr(carrying, "_LOOK_SECONDS", 0.0)
    away = AccelsweepError("squeue failed: Unable to contact slurm controller (connect failure)")
    answers: list[Any] = [away, away, [RUNNING]]

    def jobs_of(_folder: SweepFolder, _engine: Any) -> Any:
        if isinstance(answer := answers.pop(0), AccelsweepError):
            raise answer
        return answer

    monkeypatch.setattr(carrying, "list_jobs", jobs_of)
    assert carried(ordered, monkeypatch, raising(DriverEvicted(resubmit=True))) == 0
    assert len(submitted) == 1
    assert "connect failure); asking again" in capsys.readouterr().out


def test_a_head_that_cannot_be_followed_sends_the_notice_of_the_end(ordered, monkeypatch, submitted, tmp_path) -> None:
    order = DriverOrder.read(ordered.driver_file("order"))
    asked = replace(order.request, features={"notify": [f"command: cat > {tmp_path}/told"]})
    order.model_copy(update={"request": asked}).write(ordered.driver_file("order"))

    def away(*_given: Any, **_more: Any) -> str:
        raise AccelsweepError("sbatch failed: Unable to contact slurm controller")

    monkeypatch.setattr(carrying.DriverJob, "start", away)
    monkeypatch.setattr(carrying.DriverJob, "check", lambda *_: None)
    monkeypatch.setattr(carrying, "_PART_OF_NOTICE", 0.0)
    assert carried(ordered, monkeypatch, raising(DriverEvicted(resubmit=True))) == 1
    assert driver_exit_code(ordered) == 1
    told = (tmp_path / "told").read_text()
    assert told.startswith("accelsweep mine: ended with an error: sbatch failed: Unable to contact")


@pytest.mark.parametrize(("starts", "cancelled"), [(0, []), (1, ["mine"])])
def test_an_interrupted_head_ends_what_the_heads_before_it_left(ordered, monkeypatch, starts, cancelled) -> None:
    order = DriverOrder.read(ordered.driver_file("order")).model_copy(update={"starts": starts})
    order.write(ordered.driver_file("order"))
    found: list[str] = []
    monkeypatch.setattr(carrying, "cancel_jobs", lambda folder, _engine, _say: found.append(folder.name))
    carried(ordered, monkeypatch, raising(KeyboardInterrupt()))
    assert found == cancelled


class NoPlace:
    """A place that starts nothing, or says that it did."""

    kind, waits, caution = "tmux", True, "it ends with the machine"

    def __init__(self, why: str | None = None) -> None:
        self.why = why
        self.started: list[Sequence[str]] = []

    def check(self, folder: SweepFolder, name: str) -> None:
        """It takes any head."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        del folder
        if self.why is not None:
            raise AccelsweepError(self.why)
        self.started.append(command)
        return name

    def state(self, name: str) -> Whereabouts | None:
        return Whereabouts(f"session {name}")

    def end_with(self, name: str, *, waits: bool = False) -> str:
        del waits
        return f"end {name}"


@pytest.fixture
def background(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> BackgroundCommand:
    """A small sweep that is planned."""
    plan = make_plan(folder.home, ASKED, name="mine")
    made = BackgroundCommand(Request(ASKED, name="mine", cancel_old=True), plan.manifest.site, "mine", plan)
    monkeypatch.setattr(BackgroundCommand, "of", lambda _home, _request: made)
    return made


def test_a_head_that_no_place_takes_leaves_no_order(folder, background, monkeypatch) -> None:
    monkeypatch.setattr(handing, "place_for", lambda *_: NoPlace("no room"))
    with pytest.raises(AccelsweepError, match="no room"):
        handing.hand_over(folder.home, DETACHED, ())
    assert not folder.driver_file("order").exists()
    assert started_driver(folder) is None


def test_what_is_handed_over_is_planned_told_and_asked_for_once(folder, background, monkeypatch, capsys) -> None:
    place = NoPlace()
    monkeypatch.setattr(handing, "place_for", lambda *_: place)
    driver_log(folder).parent.mkdir(parents=True)
    driver_log(folder).write_text("of an earlier driver\n")
    DriverExit(code=3).write(folder.driver_file("ended"))
    assert handing.hand_over(folder.home, DETACHED, ()) == 0
    assert Manifest.read(folder.manifest) == background.plan.manifest
    order = DriverOrder.read(folder.driver_file("order"))
    assert (order.sweeps, order.revision, order.request.cancel_old) == (("mine",), 1, False)
    assert [command[-1] for command in place.started] == [str(folder.root)]
    assert not driver_log(folder).exists()
    told = capsys.readouterr().out
    for words in ("session accelsweep-head-mine", "attach mine", "end accelsweep-head-mine", "with the machine"):
        assert words in told


def test_searches_that_come_first_are_no_plan_of_the_sweep_that_was_asked_for(background) -> None:
    assert background.first_plan is background.plan
    wanted = replace(background, sweep="wanted")
    assert (wanted.first_plan, wanted.sweeps) == (None, ("wanted", "mine"))


def test_a_sweep_that_is_being_run_or_has_a_head_is_not_handed_over(folder, background, monkeypatch) -> None:
    monkeypatch.setattr(handing, "place_for", lambda *_: NoPlace())
    with lock_sweep(folder), pytest.raises(AccelsweepError, match="already being run by process"):
        handing.hand_over(folder.home, DETACHED, ())
    StartedDriver(place="tmux", name="other", host=os.uname().nodename, since="").write(folder.driver_file("handed"))
    found = (started_driver(folder), Whereabouts("session other"))
    monkeypatch.setattr(handing, "detached", lambda _folder: found)
    with pytest.raises(
        AccelsweepError, match="already has a driver in the background: session other; accelsweep attach mine"
    ):
        handing.hand_over(folder.home, DETACHED, ())
    assert not folder.driver_file("order").exists()
    assert detached(folder) is None
