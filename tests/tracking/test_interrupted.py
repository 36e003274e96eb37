"""Killed publishers, concurrent ones and stores that are down: the copy ends up complete, with every run once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forked
import pytest
from example_sweep import build_example_sweep
from guarded_server import free_port
from mlflow.exceptions import MlflowException
from polling import PATIENCE_SECONDS
from stores import BOTH_STORES, whole

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import CREATED_TAG, KEY_TAG, SOURCE_TAG
from accelsweep.tracking.published_state import up_to_date
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.snapshot import Snapshot, take_snapshot
from accelsweep.tracking.store import connect
from accelsweep.tracking.store_errors import StoreUnavailable
from accelsweep.tracking.store_uri import resolve_uri
from accelsweep.tracking.ui import running_server

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


@pytest.mark.parametrize(
    ("seed", "uri"),
    [(1, "sqlite"), pytest.param(2, "http", marks=pytest.mark.long)],  # a server adds requests, but no other states
    indirect=["uri"],
)
def test_a_publisher_killed_many_times_leaves_the_same_store_as_an_undisturbed_one(
    seed: int,
    tmp_path: Path,
    uri: str,
    original: Callable[[str], Path],
    read_store: ReadStore,
    with_findings: Callable[..., Any],
) -> None:
    sweep, undisturbed = build_example_sweep(tmp_path), SweepFolder(original("findings"), "example")
    with_findings(sweep)
    arguments = ("kill", str(sweep.home), sweep.name, uri, str(seed), "8", "0.6")
    with forked.start("publishers", *arguments, cwd=sweep.home, environment=os.environ) as process:
        killed, _ = process.communicate(PATIENCE_SECONDS)
    assert int(killed) > 0
    publish(sweep, uri)
    resumed = whole(read_store(sweep, uri))
    expected = whole(read_store(undisturbed, f"sqlite:///{undisturbed.home / 'mlflow.db'}"))
    for runs in (resumed, expected):
        for key, run in runs.items():
            if not key.startswith("run:"):
                run["started"] = run["ended"] = None  # without repeats these follow the time of the plan
                run["metrics"] = {name: points[-1][1] for name, points in run["metrics"].items()}
    assert resumed == expected


def test_a_report_started_by_a_killed_publisher_is_completed_and_not_marked_as_killed(
    sweep: SweepFolder, uri: str, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    store = connect(sweep, uri)
    tags = {KEY_TAG: "report:1", SOURCE_TAG: "report:1", CREATED_TAG: "2026-01-01T00:00:00+00:00"}
    run_id = store.client.create_run(store.experiment_id, tags=tags).info.run_id
    publish(sweep, uri)
    assert store.client.get_run(run_id).info.lifecycle_stage == "active"
    report = read_store(sweep, uri)["report:1"]
    assert (report["status"], report["tags"].get("outcome")) == ("FINISHED", None)
    assert publish(sweep, uri).written == 0


@pytest.mark.long  # the tests above complete what one killed publisher left; only here three run at once
@BOTH_STORES
def test_three_concurrent_publishers_leave_every_run_once(
    uri: str, sweep: SweepFolder, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    if uri.startswith("sqlite"):  # let them create the database, too
        (sweep.home / "mlflow.db").unlink()
    command = [sys.executable, "-m", "accelsweep.tracking.live_publishing", str(sweep.root), "--tracking-uri", uri]
    publishers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    outputs = [publisher.communicate()[0].decode() for publisher in publishers]
    assert [publisher.returncode for publisher in publishers] == [0, 0, 0], outputs
    runs = read_store(sweep, uri)  # fails if a key occurs twice
    assert len(runs) == 35
    assert all(run["parent"] for key, run in runs.items() if key.startswith("run:"))
    assert publish(sweep, uri).written == 0


@pytest.mark.long  # the next test checks how long the publisher retries
def test_a_store_that_comes_up_late_is_retried_and_reported_once(sweep: SweepFolder, tmp_path: Path) -> None:
    port, lines = free_port(), list[str]()
    results = []

    def publish_with_retries() -> None:
        results.append(publish(sweep, f"http://127.0.0.1:{port}", retry_seconds=PATIENCE_SECONDS, echo=lines.append))

    publisher = threading.Thread(target=publish_with_retries)
    publisher.start()
    publisher.join(4)  # long enough for more than one attempt
    assert publisher.is_alive()
    with running_server(tmp_path, resolve_uri(tmp_path, "sqlite:///late.db"), port):
        publisher.join(PATIENCE_SECONDS)
        assert results[0].finished == 23
    assert len(lines) == 1
    assert f"MLflow at http://127.0.0.1:{port} does not answer" in lines[0]


def test_the_retry_time_starts_with_the_first_failure_however_long_the_publisher_ran_before(
    copied: tuple[SweepFolder, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, uri = copied
    calls = []

    def fail_once(folder: SweepFolder) -> Snapshot:
        calls.append(folder)
        if len(calls) == 1:
            time.sleep(1.2)
            raise MlflowException("another publisher deleted the run")
        return take_snapshot(folder)

    monkeypatch.setattr("accelsweep.tracking.publisher.take_snapshot", fail_once)
    assert publish(sweep, uri, retry_seconds=1.0, echo=lambda _: None).finished == 23


@pytest.mark.long  # test_publisher.py publishes twice and writes nothing new; only here the files have moved
def test_a_machine_that_mounts_the_files_elsewhere_catches_up_without_duplicates(
    sweep: SweepFolder, server: str, read_store: ReadStore, tmp_path: Path
) -> None:
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    assert publish(sweep, server).finished == 22
    shutil.move(tmp_path / "late", late)
    mounted = SweepFolder(tmp_path / "mounted" / "elsewhere", sweep.name)
    shutil.copytree(sweep.root, mounted.root)
    result = publish(mounted, server)
    assert result.finished == 23
    assert result.written <= 3, "the late run, its setting and the report at most"
    assert len(read_store(sweep, server)) == 34  # fails if a key occurs twice
    assert publish(sweep, server).written == 0


def test_an_unreachable_store_is_reported_without_its_password(sweep: SweepFolder) -> None:
    uri, lines = f"http://me:hunter2@127.0.0.1:{free_port()}", list[str]()
    with pytest.raises(StoreUnavailable, match="All records are safe") as caught:
        publish(sweep, uri, retry_seconds=1, echo=lines.append)
    assert "hunter2" not in str(caught.value) + "".join(lines)
    assert not sweep.published.exists()


@pytest.mark.long  # the test above hides it as well; only here a server accepts it
def test_a_password_in_the_address_is_in_neither_the_output_nor_the_state_file(sweep: SweepFolder, server: str) -> None:
    uri = server.replace("http://", "http://me:hunter2@")
    assert "hunter2" not in str(publish(sweep, uri))
    assert b"hunter2" not in sweep.published.read_bytes()
    assert up_to_date(sweep, uri)
