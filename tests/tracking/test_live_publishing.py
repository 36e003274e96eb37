"""Live publishing: runs appear while the sweep is measured, the running one counts its steps, a full pass ends it."""

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
from polling import PATIENCE_SECONDS, until

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking import live_publishing
from accelsweep.tracking.published_state import SWEEP_CONTINUES
from accelsweep.tracking.publisher import publish

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


class SteppedSweep:
    """A sweep whose records are held back until the test releases them."""

    def __init__(self, folder: SweepFolder, uri: str) -> None:
        self.folder, self.uri = folder, uri
        self.since = datetime.now(UTC).isoformat()
        self._held_back = folder.home / "held back"
        shutil.move(folder.root / "runs", self._held_back)
        self.runs = [run for run in Manifest.read(folder.manifest).wanted_runs() if (self._held_back / run).exists()]

    def finish(self, run: str) -> None:
        """Release a run's record, with the start that its hold had."""
        source = self._held_back / run
        shutil.copytree(source, self.folder.run(run), ignore=shutil.ignore_patterns("record.json"), dirs_exist_ok=True)
        finished = datetime.fromisoformat(self.since) + timedelta(days=365)
        times = {"started_at": self.since, "finished_at": finished.isoformat()}
        Record.read(source / "record.json").model_copy(update=times).write(self.folder.record(run))

    def hold(self, run: str, pid: int | None = None) -> None:
        """LockOwner `run` as being measured by this process, or by another one."""
        pid = pid or os.getpid()
        block = next(block.name for block in Manifest.read(self.folder.manifest).blocks if run in block.runs)
        LockOwner(
            block=block,
            host=socket.gethostname(),
            pid=pid,
            process_started=psutil.Process(pid).create_time(),
            since=self.since,
            run=run,
            run_since=self.since,
        ).write(self.folder.lock(block))

    def start_publisher(self, *options: str) -> Forked:
        log, home = self.folder.home / "publish.log", self.folder.home
        log.touch()  # a test may read it before the process exists
        arguments = (str(self.folder.root), "--follow", *options, "--tracking-uri", self.uri)
        return forked.start("publishers", "log", str(log), *arguments, cwd=home, environment=os.environ)


def test_runs_appear_while_the_sweep_is_measured_and_the_end_is_a_full_pass(
    sweep: SweepFolder,
    uri: str,
    read_store: ReadStore,
    with_findings: Callable[..., Any],
    count_steps: Callable[[SweepFolder, str, int], None],
) -> None:
    stepped = SteppedSweep(sweep, uri)
    first, *others = stepped.runs
    key, parent = f"run:{first}", f"setting:{first.rpartition('-r')[0]}"
    stepped.hold(first)
    count_steps(sweep, first, 7)
    publisher = stepped.start_publisher()
    try:
        until(lambda: "steps_done" in read_store(sweep, uri).get(key, {}).get("metrics", {}))
        unsupported = {
            f"setting:{setting.name}" for setting in Manifest.read(sweep.manifest).settings if setting.unsupported
        }
        unsupported.add("group:unsupported")
        runs = read_store(sweep, uri)
        assert (runs[key]["status"], runs[parent]["status"], runs[key]["parent"]) == ("RUNNING", "RUNNING", parent)
        assert set(runs) == {key, parent, *unsupported}
        count_steps(sweep, first, 20)
        until(lambda: read_store(sweep, uri)[key]["metrics"]["steps_done"][-1][:2] == (20, 20.0))
        stepped.finish(first)
        until(lambda: read_store(sweep, uri)[key]["status"] == "FINISHED")
        runs = read_store(sweep, uri)
        assert set(runs) == {key, parent, *unsupported}, "the run that was running is the one that finished"
        assert runs[parent]["status"] == "RUNNING", "the sweep continues"
        for run in others:
            stepped.finish(run)
        sweep.lock(next(block.name for block in Manifest.read(sweep.manifest).blocks if first in block.runs)).unlink()
        with_findings(sweep)
    finally:
        publisher.send_signal(signal.SIGTERM)
    assert publisher.wait(PATIENCE_SECONDS) == 0, (sweep.home / "publish.log").read_text()
    runs = read_store(sweep, uri)
    assert len(runs) == 35
    assert "RUNNING" not in {run["status"] for run in runs.values()}


@pytest.mark.long  # test_published_state.py checks what is noticed; only here a live publisher acts on it
def test_a_published_sweep_is_left_alone_until_something_is_missing(
    sweep: SweepFolder, uri: str, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    """The driver of a finished sweep ends at once. A deleted database is filled again."""
    with_findings(sweep)
    publish(sweep, uri)

    def publish_live() -> str:
        driver = subprocess.Popen(["true"])
        driver.wait()
        command = [sys.executable, "-m", "accelsweep.tracking.live_publishing", str(sweep.root), "--follow"]
        command += ["--tracking-uri", uri, "--until-pid", str(driver.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        return done.stdout

    assert publish_live() == f"{sweep.name}: MLflow has everything already\n"
    (sweep.home / "mlflow.db").unlink()
    assert "MLflow runs written" in publish_live()
    assert len(read_store(sweep, uri)) == 35


def test_a_run_of_a_killed_sweep_does_not_stay_running(sweep: SweepFolder, uri: str, read_store: ReadStore) -> None:
    driver = subprocess.Popen(["sleep", "600"])
    stepped = SteppedSweep(sweep, uri)
    run = stepped.runs[0]
    stepped.hold(run, pid=driver.pid)
    publisher = stepped.start_publisher("--until-pid", str(driver.pid))
    until(lambda: read_store(sweep, uri).get(f"run:{run}", {}).get("status") == "RUNNING")
    driver.kill()
    assert publisher.wait(PATIENCE_SECONDS) == 0
    driver.wait()
    runs = read_store(sweep, uri)
    assert (runs[f"run:{run}"]["status"], runs[f"run:{run}"]["tags"]["outcome"]) == ("KILLED", "not_run")
    assert runs[f"setting:{run.rpartition('-r')[0]}"]["status"] == "KILLED"


def test_a_server_that_accepts_connections_and_never_answers_is_reported_early(
    sweep: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(live_publishing._FAIL_FAST, "MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    connect, retries = live_publishing.connect, list[str]()

    def note_retries(*arguments: Any) -> Any:
        retries.append(os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])
        return connect(*arguments)

    monkeypatch.setattr(live_publishing, "connect", note_retries)
    before, lines = dict(os.environ), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        live_publishing.LivePublisher(sweep, f"http://127.0.0.1:{mute.getsockname()[1]}", lines.append).poll()
    (line,) = lines
    assert line.endswith(SWEEP_CONTINUES)
    assert "does not answer" in line
    assert retries == ["0"]
    assert dict(os.environ) == before, "later requests have the usual timeout and retries"


@pytest.mark.long  # test_interrupted.py gives up an unreachable store; only here a sweep runs meanwhile
def test_an_unreachable_store_is_reported_once_and_does_not_delay_the_sweep(sweep: SweepFolder, tmp_path: Path) -> None:
    stepped = SteppedSweep(sweep, "http://127.0.0.1:9")
    stepped.hold(stepped.runs[0])
    publisher = stepped.start_publisher()
    log = tmp_path / "publish.log"
    until(lambda: "does not answer" in log.read_text("utf-8"))
    assert publisher.poll() is None
    assert os.getpriority(os.PRIO_PROCESS, publisher.pid) == 19
    time.sleep(6)
    assert log.read_text("utf-8").count("does not answer") == 1
    publisher.send_signal(signal.SIGTERM)
    assert publisher.wait(PATIENCE_SECONDS) == 1, "the last pass does not retry"
    assert "All records are safe" in log.read_text("utf-8")
