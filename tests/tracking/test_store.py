"""Creating a store and finding the sweep's experiment in it, beside other publishers and other people's sweeps."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from example_sweep import build_example_sweep
from polling import until
from stores import whole

from accelsweep.cli.sweeps import publish_now
from accelsweep.errors import DamagedFile
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.live_publishing import LivePublisher
from accelsweep.tracking.mlflow_run import KEY_TAG, SOURCE_TAG
from accelsweep.tracking.published_state import up_to_date
from accelsweep.tracking.publisher import publish
from accelsweep.tracking.store import SWEEP_TAG, create_database, get_or_create_experiment, sweep_mark
from accelsweep.tracking.store_errors import StoreDamaged

pytestmark = pytest.mark.real

USERS_LOGGER = """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("mine")
"""


def test_a_database_that_a_users_run_is_creating_is_waited_for(tmp_path: Path) -> None:
    """MLflow locks by URI, and a run's logger names the same file by another URI, with a relative path."""
    from mlflow import MlflowClient

    store = tmp_path / "mlflow.db"
    with subprocess.Popen([sys.executable, "-c", USERS_LOGGER], cwd=tmp_path) as run:
        until(store.exists)
        create_database(f"sqlite:///{store}", tmp_path)
        experiments = MlflowClient(f"sqlite:///{store}").search_experiments()
        assert "Default" in {experiment.name for experiment in experiments}
    assert run.returncode == 0


def test_a_new_database_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        create_database(f"sqlite:///{tmp_path}/mlflow.db", tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mlflow.db").stat().st_mode) == 0o664


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite(path: Path) -> None:
    path.write_bytes(b"x" * 100_000)


def replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("damage", [truncate, overwrite, replace_by_fifo])
def test_a_damaged_database_is_reported_at_once_and_never_touched(
    small_sweep: SweepFolder, empty_database: Path, damage: Callable[[Path], None]
) -> None:
    store = small_sweep.home / "mlflow.db"
    shutil.copy(empty_database, store)
    damage(store)
    before = store.lstat()
    with pytest.raises(StoreDamaged, match=f"accelsweep publish {small_sweep.name} --anew moves it aside"):
        publish(small_sweep, retry_seconds=600.0)
    assert store.lstat().st_mtime_ns == before.st_mtime_ns
    assert not up_to_date(small_sweep)
    assert "runs in MLflow" in publish_now(small_sweep.home, small_sweep.name, None, reset=True)
    assert store.with_name("mlflow.db.1").lstat().st_mtime_ns == before.st_mtime_ns


# On a server that several people share, each sweep has an experiment of its own.

ExperimentName = Callable[..., str]


@pytest.fixture
def unstarted(sweep: SweepFolder) -> SweepFolder:
    """The sweep before its first run."""
    shutil.rmtree(sweep.root / "runs")
    return sweep


@pytest.fixture
def other(unstarted: SweepFolder, tmp_path: Path) -> SweepFolder:
    """Another user's sweep of the same name, before its first run."""
    folder = build_example_sweep(tmp_path / "other", unstarted.name)
    shutil.rmtree(folder.root / "runs")
    return folder


@pytest.fixture
def experiment_name(server: str, monkeypatch: pytest.MonkeyPatch) -> ExperimentName:
    """A function that returns the name of a sweep's experiment on the server, for the user `bob`."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    client = MlflowClient(server)
    return lambda folder, *records: get_or_create_experiment(client, folder, server, records).name


def test_sweeps_of_one_name_get_their_own_experiments_and_keep_them(
    unstarted: SweepFolder, other: SweepFolder, experiment_name: ExperimentName, server: str
) -> None:
    from mlflow import MlflowClient

    name = unstarted.name
    assert [experiment_name(unstarted), experiment_name(other)] == [name, f"{name}-bob"]
    assert experiment_name(build_example_sweep(other.home / "third", name)) == f"{name}-bob-2"
    client = MlflowClient(server)
    client.rename_experiment(client.get_experiment_by_name(name).experiment_id, f"{name} of May")
    client.delete_experiment(client.get_experiment_by_name(f"{name}-bob").experiment_id)
    assert [experiment_name(unstarted), experiment_name(other)] == [f"{name} of May", f"{name}-bob"]
    assert client.get_experiment_by_name(f"{name}-bob").lifecycle_stage == "active"


def test_concurrent_publishers_agree_on_the_experiments(
    unstarted: SweepFolder, other: SweepFolder, experiment_name: ExperimentName
) -> None:
    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(experiment_name, [unstarted, other] * 3))
    assert len(set(names[::2])) == len(set(names[1::2])) == 1
    assert {*names} == {unstarted.name, f"{unstarted.name}-bob"}


def test_a_copy_of_the_folder_is_recognised_by_its_records_unless_it_was_renamed(
    unstarted: SweepFolder, other: SweepFolder, experiment_name: ExperimentName, server: str
) -> None:
    from mlflow import MlflowClient

    experiment_name(unstarted)
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name(unstarted.name).experiment_id
    client.create_run(experiment, tags={KEY_TAG: "run:a-r0", SOURCE_TAG: "5eed"})
    assert experiment_name(other, "5eed", "f00d") == unstarted.name
    renamed = SweepFolder(unstarted.home, f"{unstarted.name}-again")
    shutil.copytree(unstarted.root, renamed.root)
    assert experiment_name(renamed) == renamed.name


def test_an_empty_experiment_that_somebody_created_by_hand_is_used(
    unstarted: SweepFolder, other: SweepFolder, experiment_name: ExperimentName, server: str
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(server)
    experiment = client.create_experiment(unstarted.name)
    assert [experiment_name(unstarted), experiment_name(other)] == [unstarted.name, f"{unstarted.name}-bob"]
    assert client.get_experiment(experiment).tags[SWEEP_TAG] == sweep_mark(unstarted)


def test_publishing_live_from_the_first_run_on_does_not_touch_another_sweep_of_the_same_name(
    unstarted: SweepFolder, other: SweepFolder, server: str, read_store: Callable[..., dict[str, object]]
) -> None:
    LivePublisher(unstarted, server, print).poll()
    before = whole(read_store(unstarted, server))
    assert len(before) == 3
    first = Manifest.read(other.manifest).wanted_runs()[0]
    measured = build_example_sweep(other.home / "later", unstarted.name)
    shutil.copytree(measured.run(first), other.run(first))
    LivePublisher(other, server, print).poll()
    assert whole(read_store(unstarted, server)) == before


def test_a_damaged_mark_is_reported(unstarted: SweepFolder, experiment_name: ExperimentName) -> None:
    sweep_mark(unstarted)
    unstarted.mark.write_bytes(unstarted.mark.read_bytes()[:-9])
    with pytest.raises(DamagedFile, match=r"mark\.json"):
        experiment_name(unstarted)
