"""A driver is detached from its terminal, runs its stored command, and ends or submits a successor."""

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
from accelsweep.features.detach import command, driver
from accelsweep.features.detach.backends import (
    DriverExit,
    DriverState,
    Submission,
    active_submission,
    driver_exit_code,
    driver_log,
    last_submission,
)
from accelsweep.features.detach.driver import DriverSpec, PreparedCommand
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
def stored(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    """A sweep on a cluster with a stored command, in a process whose signal handlers stay unchanged."""
    site = Site(name="box", scheduler="slurm")
    spec = DriverSpec(request=Request(ASKED, time_budget="1h"), site=site, sweeps=("mine",), revision=1)
    spec.write(folder.driver_file("order"))
    for name in ("raise_on_eviction", "ignore_eviction"):
        monkeypatch.setattr(driver, name, lambda *_: None)
    return folder


def run_driver(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, does: Callable[[], int]) -> int:
    monkeypatch.setattr(driver, "_run_stored", lambda _folder, _spec: does())
    return driver.run_driver(folder)


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
def test_the_end_of_a_driver_leaves_its_exit_code_and_removes_the_spec(stored, monkeypatch, does, code) -> None:
    assert run_driver(stored, monkeypatch, does) == code
    assert driver_exit_code(stored) == code
    assert not stored.driver_file("order").exists()


def test_an_internal_error_leaves_an_exit_code_too(stored, monkeypatch) -> None:
    with pytest.raises(ZeroDivisionError):
        run_driver(stored, monkeypatch, lambda: 1 // 0)
    assert driver_exit_code(stored) == 1


def test_without_a_sweep_the_usage_is_printed(monkeypatch, capsys) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr("sys.argv", ["driver"])
    monkeypatch.setattr(driver.signal, "signal", lambda *_: None)
    monkeypatch.setattr(driver, "interrupt_on_termination", lambda: None)
    with pytest.raises(SystemExit) as ended:
        driver.main()
    assert ended.value.code == 2
    assert "python -m accelsweep.features.detach.driver [-h] sweeps/NAME" in capsys.readouterr().err


def test_a_damaged_spec_is_rejected_by_name(stored, monkeypatch, capsys) -> None:
    stored.driver_file("order").write_text("[")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setattr("sys.argv", ["driver", str(stored.root)])
    monkeypatch.setattr(driver.signal, "signal", lambda *_: None)
    monkeypatch.setattr(driver, "interrupt_on_termination", lambda: None)
    with pytest.raises(SystemExit) as ended:
        driver.main()
    assert ended.value.code == 1
    assert "driver.order.json" in capsys.readouterr().err


def test_a_preempted_driver_keeps_its_spec_for_the_next_start(stored, monkeypatch) -> None:
    assert run_driver(stored, monkeypatch, raising(DriverEvicted(resubmit=False))) == 0
    assert driver_exit_code(stored) is None
    assert DriverSpec.read(stored.driver_file("order")).starts == 1


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], str, str | None]]:
    """The submitted jobs of drivers: command, name, and the job that each depends on."""
    jobs: list[tuple[Sequence[str], str, str | None]] = []

    def start(_job: Any, _folder: SweepFolder, command: Sequence[str], name: str, after: str | None = None) -> str:
        jobs.append((command, name, after))
        return "13"

    monkeypatch.setattr(driver.SlurmBackend, "start", start)
    monkeypatch.setattr(driver.SlurmBackend, "check", lambda *_: None)
    monkeypatch.setattr(driver, "list_jobs", lambda _folder, _engine: [RUNNING])
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    return jobs


def test_a_driver_at_its_time_limit_submits_a_successor(stored, monkeypatch, submitted) -> None:
    assert run_driver(stored, monkeypatch, raising(DriverEvicted(resubmit=True))) == 0
    ((command, name, after),) = submitted
    assert (command[-1], name, after) == (str(stored.root), "accelsweep-driver-mine", "12")
    assert last_submission(stored).name == "13"
    assert driver_exit_code(stored) is None
    left = DriverSpec.read(stored.driver_file("order"))
    assert (left.starts, left.request.time_budget) == (1, "3600s")


@pytest.mark.parametrize("left", [[], [replace(RUNNING, state="PENDING", reason="PartitionTimeLimit", nodes="")]])
def test_a_chain_without_progress_ends(stored, monkeypatch, submitted, left) -> None:
    monkeypatch.setattr(driver, "list_jobs", lambda _folder, _engine: left)
    assert run_driver(stored, monkeypatch, raising(DriverEvicted(resubmit=True))) == 1
    assert submitted == []
    assert driver_exit_code(stored) == 1
    assert not stored.driver_file("order").exists()


def test_a_short_outage_of_slurm_does_not_end_the_chain(stored, monkeypatch, submitted, capsys) -> None:
    monkeypatch.setattr(driver, "_POLL_SECONDS", 0.0)
    outage = AccelsweepError("squeue failed: Unable to contact slurm controller (connect failure)")
    answers: list[Any] = [outage, outage, [RUNNING]]

    def list_jobs(_folder: SweepFolder, _engine: Any) -> Any:
        if isinstance(answer := answers.pop(0), AccelsweepError):
            raise answer
        return answer

    monkeypatch.setattr(driver, "list_jobs", list_jobs)
    assert run_driver(stored, monkeypatch, raising(DriverEvicted(resubmit=True))) == 0
    assert len(submitted) == 1
    assert "connect failure); asking again" in capsys.readouterr().out


def test_a_driver_whose_successor_cannot_be_submitted_sends_a_notification(
    stored, monkeypatch, submitted, tmp_path
) -> None:
    spec = DriverSpec.read(stored.driver_file("order"))
    request = replace(spec.request, features={"notify": [f"command: cat > {tmp_path}/told"]})
    spec.model_copy(update={"request": request}).write(stored.driver_file("order"))

    def unavailable(*_args: Any, **_kwargs: Any) -> str:
        raise AccelsweepError("sbatch failed: Unable to contact slurm controller")

    monkeypatch.setattr(driver.SlurmBackend, "start", unavailable)
    monkeypatch.setattr(driver.SlurmBackend, "check", lambda *_: None)
    monkeypatch.setattr(driver, "_SLURM_ANSWER_SHARE", 0.0)
    assert run_driver(stored, monkeypatch, raising(DriverEvicted(resubmit=True))) == 1
    assert driver_exit_code(stored) == 1
    message = (tmp_path / "told").read_text()
    assert message.startswith("accelsweep mine: ended with an error: sbatch failed: Unable to contact")


@pytest.mark.parametrize(("starts", "cancelled"), [(0, []), (1, ["mine"])])
def test_an_interrupted_driver_cancels_the_jobs_of_the_drivers_before_it(
    stored, monkeypatch, starts, cancelled
) -> None:
    spec = DriverSpec.read(stored.driver_file("order")).model_copy(update={"starts": starts})
    spec.write(stored.driver_file("order"))
    cancelled_sweeps: list[str] = []
    monkeypatch.setattr(driver, "cancel_jobs", lambda folder, _engine, _say: cancelled_sweeps.append(folder.name))
    run_driver(stored, monkeypatch, raising(KeyboardInterrupt()))
    assert cancelled_sweeps == cancelled


class FakeBackend:
    """A backend that only remembers what it should start, or fails."""

    name, queues, warning = "tmux", True, "it ends with the machine"

    def __init__(self, error: str | None = None) -> None:
        self.error = error
        self.started: list[Sequence[str]] = []

    def check(self, folder: SweepFolder, name: str) -> None:
        """Accept every driver."""

    def start(self, folder: SweepFolder, command: Sequence[str], name: str) -> str:
        del folder
        if self.error is not None:
            raise AccelsweepError(self.error)
        self.started.append(command)
        return name

    def state(self, name: str) -> DriverState | None:
        return DriverState(f"session {name}")

    def stop_command(self, name: str, *, pending: bool = False) -> str:
        del pending
        return f"end {name}"


@pytest.fixture
def prepared(folder: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> PreparedCommand:
    """A small sweep that was planned."""
    plan = make_plan(folder.home, ASKED, name="mine")
    command = PreparedCommand(Request(ASKED, name="mine", cancel_old=True), plan.manifest.site, "mine", plan)
    monkeypatch.setattr(PreparedCommand, "of", lambda _home, _request: command)
    return command


def test_a_head_that_no_place_takes_leaves_no_order(folder, prepared, monkeypatch) -> None:
    monkeypatch.setattr(command, "select_backend", lambda *_: FakeBackend("no room"))
    with pytest.raises(AccelsweepError, match="no room"):
        command.detach(folder.home, DETACHED, ())
    assert not folder.driver_file("order").exists()
    assert last_submission(folder) is None


def test_a_detached_command_is_planned_stored_and_started_once(folder, prepared, monkeypatch, capsys) -> None:
    backend = FakeBackend()
    monkeypatch.setattr(command, "select_backend", lambda *_: backend)
    driver_log(folder).parent.mkdir(parents=True)
    driver_log(folder).write_text("of an earlier driver\n")
    DriverExit(code=3).write(folder.driver_file("ended"))
    assert command.detach(folder.home, DETACHED, ()) == 0
    assert Manifest.read(folder.manifest) == prepared.plan.manifest
    spec = DriverSpec.read(folder.driver_file("order"))
    assert (spec.sweeps, spec.revision, spec.request.cancel_old) == (("mine",), 1, False)
    assert [command[-1] for command in backend.started] == [str(folder.root)]
    assert not driver_log(folder).exists()
    output = capsys.readouterr().out
    for words in ("session accelsweep-driver-mine", "attach mine", "end accelsweep-driver-mine", "with the machine"):
        assert words in output


def test_batch_size_searches_are_not_the_plan_of_the_sweep_itself(prepared) -> None:
    assert prepared.sweep_plan is prepared.plan
    wanted = replace(prepared, sweep="wanted")
    assert (wanted.sweep_plan, wanted.sweeps) == (None, ("wanted", "mine"))


def test_a_sweep_that_is_running_or_has_a_driver_is_not_detached(folder, prepared, monkeypatch) -> None:
    monkeypatch.setattr(command, "select_backend", lambda *_: FakeBackend())
    with lock_sweep(folder), pytest.raises(AccelsweepError, match="already being run by process"):
        command.detach(folder.home, DETACHED, ())
    Submission(place="tmux", name="other", host=os.uname().nodename, since="").write(folder.driver_file("handed"))
    active = (last_submission(folder), DriverState("session other"))
    monkeypatch.setattr(command, "active_submission", lambda _folder: active)
    with pytest.raises(AccelsweepError, match="already has a driver: session other; accelsweep attach mine"):
        command.detach(folder.home, DETACHED, ())
    assert not folder.driver_file("order").exists()
    assert active_submission(folder) is None
