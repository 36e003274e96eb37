"""Following a sweep: runs appear while it goes on, the running one counts its steps, and the end is a full pass."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import forked
import psutil
import pytest
from forked import Forked
from patience import PATIENCE_SECONDS

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Hold, Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking import live_publishing as following
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.sweep_snapshot import GOES_ON

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


class Sweep:
    """A sweep that goes on as the test wishes: all of its records are held back until they are asked for."""

    def __init__(self, folder: SweepFolder, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self.waiting = folder.home / "not yet"
        shutil.move(folder.root / "runs", self.waiting)
        self.runs = [run for run in Manifest.read(folder.manifest).wanted_runs() if (self.waiting / run).exists()]

    def finish(self, run: str) -> None:
        """Let a run leave its record, begun when its hold says."""
        ignored = shutil.ignore_patterns("record.json")
        shutil.copytree(self.waiting / run, self.folder.run(run), ignore=ignored, dirs_exist_ok=True)
        since = datetime.fromisoformat(self.since)
        times = {"started_at": self.since, "finished_at": (since + timedelta(days=365)).isoformat()}
        Record.read(self.waiting / run / "record.json").model_copy(update=times).write(self.folder.record(run))

    def hold(self, run: str, pid: int | None = None) -> None:
        """Say that this process, or another, measures `run` now."""
        self.since = getattr(self, "since", None) or datetime.now(UTC).isoformat()
        pid = pid or os.getpid()
        block = next(block.name for block in Manifest.read(self.folder.manifest).blocks if run in block.runs)
        Hold(
            block=block,
            host=socket.gethostname(),
            pid=pid,
            process_started=psutil.Process(pid).create_time(),
            since=self.since,
            run=run,
            run_since=self.since,
        ).write(self.folder.hold(block))

    def follower(self, *options: str) -> Forked:
        """Start a follower."""
        log, home = self.folder.home / "publish.log", self.folder.home
        log.touch()  # a test may look into it before there is a process that writes
        following = (str(self.folder.root), "--follow", *options, "--tracking-uri", self.uri)
        return forked.start("publishers", "log", str(log), *following, cwd=home, environment=os.environ)


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.2)


def test_runs_appear_while_the_sweep_goes_on_and_the_end_is_a_full_pass(
    sweep: SweepFolder,
    uri: str,
    read_store: ReadStore,
    with_findings: Callable[..., Any],
    count_steps: Callable[[SweepFolder, str, int], None],
) -> None:
    going = Sweep(sweep, uri)
    first, *others = going.runs
    key, cell = f"run:{first}", f"cell:{first.rpartition('-r')[0]}"
    going.hold(first)
    count_steps(sweep, first, 7)
    follower = going.follower()
    try:
        wait_for(lambda: "steps_done" in read_store(sweep, uri).get(key, {}).get("metrics", {}))
        unsupported = {f"cell:{c.name}" for c in Manifest.read(sweep.manifest).cells if c.unsupported}
        unsupported.add("group:unsupported")
        held = read_store(sweep, uri)
        assert (held[key]["status"], held[cell]["status"], held[key]["parent"]) == ("RUNNING", "RUNNING", cell)
        assert set(held) == {key, cell, *unsupported}
        count_steps(sweep, first, 20)
        wait_for(lambda: read_store(sweep, uri)[key]["metrics"]["steps_done"][-1][:2] == (20, 20.0))
        going.finish(first)
        wait_for(lambda: read_store(sweep, uri)[key]["status"] == "FINISHED")
        held = read_store(sweep, uri)
        assert set(held) == {key, cell, *unsupported}, "the run that was seen running is the one that finished"
        assert held[cell]["status"] == "RUNNING", "the sweep goes on"
        for run in others:
            going.finish(run)
        sweep.hold(next(b.name for b in Manifest.read(sweep.manifest).blocks if first in b.runs)).unlink()
        with_findings(sweep)
    finally:
        follower.send_signal(signal.SIGTERM)
    assert follower.wait(PATIENCE_SECONDS) == 0, (sweep.home / "publish.log").read_text()
    held = read_store(sweep, uri)
    assert len(held) == 35
    assert "RUNNING" not in {entry["status"] for entry in held.values()}


@pytest.mark.long  # test_state.py tells what is missing; only here a follower meets it
def test_a_sweep_that_the_database_has_is_left_alone_until_something_is_missing(
    sweep: SweepFolder, uri: str, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    """A finished sweep is run again by a head that ends at once. A database that was deleted is written anew."""
    with_findings(sweep)
    publish(sweep, uri)

    def said() -> str:
        head = subprocess.Popen(["true"])
        head.wait()
        command = [
            sys.executable,
            "-m",
            "accelsweep.tracking.live_publishing",
            str(sweep.root),
            "--follow",
            "--tracking-uri",
            uri,
        ]
        command += ["--until-pid", str(head.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        return done.stdout

    assert said() == f"{sweep.name}: MLflow has everything already\n"
    (sweep.home / "mlflow.db").unlink(missing_ok=True)
    Path(uri.removeprefix("sqlite:///")).unlink(missing_ok=True)
    assert "entries written" in said()
    assert len(read_store(sweep, uri)) == 35


def test_a_run_whose_sweep_was_killed_does_not_stay_running(
    sweep: SweepFolder, uri: str, read_store: ReadStore
) -> None:
    head = subprocess.Popen(["sleep", "600"])
    going = Sweep(sweep, uri)
    going.hold(going.runs[0], pid=head.pid)
    follower = going.follower("--until-pid", str(head.pid))
    key = f"run:{going.runs[0]}"
    wait_for(lambda: read_store(sweep, uri).get(key, {}).get("status") == "RUNNING")
    head.kill()
    assert follower.wait(PATIENCE_SECONDS) == 0
    head.wait()
    held = read_store(sweep, uri)
    assert (held[key]["status"], held[key]["tags"]["outcome"]) == ("KILLED", "not_run")
    assert held[f"cell:{going.runs[0].rpartition('-r')[0]}"]["status"] == "KILLED"


def test_a_server_that_accepts_and_never_answers_is_told_of_early(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(following._QUICKLY, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    connect, retries = following.connect, list[str]()

    def counted(*given: Any) -> Any:
        retries.append(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
        return connect(*given)

    monkeypatch.setattr(following, "connect", counted)
    before, told = dict(os.environ), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        following.Follower(sweep, f"http://127.0.0.1:{mute.getsockname()[1]}", told.append).poll()
    (line,) = told
    assert line.endswith(GOES_ON)
    assert "does not answer" in line
    assert retries == ["0"]
    assert dict(os.environ) == before, "publishing itself is as patient as ever"


@pytest.mark.long  # test_interrupted.py gives a silent store up; only here a sweep goes on beside it
def test_a_silent_store_is_told_once_and_costs_the_sweep_nothing(sweep: SweepFolder, tmp_path: Path) -> None:
    going = Sweep(sweep, "http://127.0.0.1:9")
    going.hold(going.runs[0])
    follower = going.follower()
    log = tmp_path / "publish.log"
    wait_for(lambda: "does not answer" in log.read_text("utf-8"))
    assert follower.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, follower.pid) == 19
    time.sleep(6)
    assert log.read_text("utf-8").count("does not answer") == 1
    follower.send_signal(signal.SIGTERM)
    assert follower.wait(PATIENCE_SECONDS) == 1, "a store that was silent to the last is not waited for"
    assert "All records are safe" in log.read_text("utf-8")
