"""Publishers that are killed, that meet each other or no store: it ends up whole, with every run in it once."""

from __future__ import annotations

import os
import shutil
import socket
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
from mlflow.exceptions import MlflowException
from patience import PATIENCE_SECONDS
from stores import BOTH_STORES

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.mlflow_run import CREATED, KEY, SOURCE
from accelsweep.tracking.publisher import StoreUnreachable, publish
from accelsweep.tracking.store import connect
from accelsweep.tracking.sweep_snapshot import Snapshot, resolve, take, up_to_date
from accelsweep.tracking.ui import running_server

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]


def refused_port() -> int:
    """Return a port on loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("seed", "uri"),
    [(1, "sqlite"), pytest.param(2, "http", marks=pytest.mark.long)],  # a server costs a kill a request, not a state
    indirect=["uri"],
)
def test_a_publisher_killed_again_and_again_leaves_the_same_store_as_one_left_alone(
    seed: int,
    tmp_path: Path,
    uri: str,
    original: Callable[[str], Path],
    read_store: ReadStore,
    with_findings: Callable[..., Any],
) -> None:
    sweep, alone = build_example_sweep(tmp_path), SweepFolder(original("findings"), "example")
    with_findings(sweep)
    killing = ("kill", str(sweep.home), sweep.name, uri, str(seed), "8", "0.6")
    with forked.start("publishers", *killing, cwd=sweep.home, environment=os.environ) as process:
        killed, _ = process.communicate(PATIENCE_SECONDS)
    assert int(killed) > 0
    publish(sweep, uri)
    resumed = dict(read_store(sweep, uri))
    expected = dict(read_store(alone, f"sqlite:///{alone.home / 'mlflow.db'}"))
    for held in (resumed, expected):
        for key, entry in held.items():
            if not key.startswith("run:"):
                entry["started"] = entry["ended"] = None  # of what cannot run: when it was published
                entry["metrics"] = {name: points[-1][1] for name, points in entry["metrics"].items()}
    assert resumed == expected


def test_a_report_begun_by_a_publisher_that_was_killed_is_completed_and_not_called_abandoned(
    sweep: SweepFolder, uri: str, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    store = connect(sweep, uri)
    tags = {KEY: "report:1", SOURCE: "report:1", CREATED: "2026-01-01T00:00:00+00:00"}
    begun = store.client.create_run(store.experiment_id, tags=tags).info.run_id
    publish(sweep, uri)
    assert store.client.get_run(begun).info.lifecycle_stage == "active"
    report = read_store(sweep, uri)["report:1"]
    assert (report["status"], report["tags"].get("outcome")) == ("FINISHED", None)
    assert publish(sweep, uri).written == 0


@pytest.mark.long  # a publisher that was killed anywhere is completed by the next, above; only here three meet
@BOTH_STORES
def test_three_publishers_at_once_leave_every_run_once(
    uri: str, sweep: SweepFolder, read_store: ReadStore, with_findings: Callable[..., Any]
) -> None:
    with_findings(sweep)
    if uri.startswith("sqlite"):  # they make the database, too
        (sweep.home / "mlflow.db").unlink()
    command = [sys.executable, "-m", "accelsweep.tracking.live_publishing", str(sweep.root), "--tracking-uri", uri]
    publishers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    said = [publisher.communicate()[0].decode() for publisher in publishers]
    assert [publisher.returncode for publisher in publishers] == [0, 0, 0], said
    held = read_store(sweep, uri)  # fails if a key stands there twice
    assert len(held) == 35
    assert all(entry["parent"] for key, entry in held.items() if key.startswith("run:"))
    assert publish(sweep, uri).written == 0


@pytest.mark.long  # the next test measures its patience
def test_a_store_that_answers_late_is_waited_for_and_that_is_told_once(sweep: SweepFolder, tmp_path: Path) -> None:
    port, said = refused_port(), list[str]()
    published = []

    def publish_patiently() -> None:
        published.append(
            publish(sweep, f"http://127.0.0.1:{port}", patience_seconds=PATIENCE_SECONDS, tell=said.append)
        )

    publisher = threading.Thread(target=publish_patiently)
    publisher.start()
    publisher.join(4)  # long enough to be refused more than once
    assert publisher.is_alive()
    with running_server(tmp_path, resolve(tmp_path, "sqlite:///late.db"), port):
        publisher.join(PATIENCE_SECONDS)
        assert published[0].finished == 23
    assert len(said) == 1
    assert f"MLflow at http://127.0.0.1:{port} does not answer" in said[0]


def test_patience_begins_with_the_first_failure_however_long_went_well_before(
    copied: tuple[SweepFolder, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, uri = copied
    looked = []

    def disturbed_once(folder: SweepFolder) -> Snapshot:
        looked.append(folder)
        if len(looked) == 1:
            time.sleep(1.2)
            raise MlflowException("another publisher deleted the run")
        return take(folder)

    monkeypatch.setattr("accelsweep.tracking.publisher.take", disturbed_once)
    assert publish(sweep, uri, patience_seconds=1.0, tell=lambda _: None).finished == 23


@pytest.mark.long  # test_publisher.py publishes again and writes nothing twice; only here the files have moved
def test_another_machine_that_sees_the_files_elsewhere_catches_up_and_writes_nothing_twice(
    sweep: SweepFolder, server: str, read_store: ReadStore, tmp_path: Path
) -> None:
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    assert publish(sweep, server).finished == 22
    shutil.move(tmp_path / "late", late)
    there = SweepFolder(tmp_path / "mounted" / "elsewhere", sweep.name)
    shutil.copytree(sweep.root, there.root)
    caught_up = publish(there, server)
    assert caught_up.finished == 23
    assert caught_up.written <= 3, "the late run, its cell and the report at most"
    assert len(read_store(sweep, server)) == 34  # fails if a key stands there twice
    assert publish(sweep, server).written == 0


def test_an_unreachable_store_is_given_up_with_its_password_hidden(sweep: SweepFolder) -> None:
    uri, said = f"http://me:hunter2@127.0.0.1:{refused_port()}", list[str]()
    with pytest.raises(StoreUnreachable, match="All records are safe") as caught:
        publish(sweep, uri, patience_seconds=1, tell=said.append)
    assert "hunter2" not in str(caught.value) + "".join(said)
    assert not sweep.published.exists()


@pytest.mark.long  # the test above hides it as well; only here a server takes it
def test_a_password_in_the_address_reaches_neither_output_nor_the_state_file(sweep: SweepFolder, server: str) -> None:
    uri = server.replace("http://", "http://me:hunter2@")
    assert "http://***@127.0.0.1" in str(publish(sweep, uri))
    assert b"hunter2" not in sweep.published.read_bytes()
    assert up_to_date(sweep, uri)
