"""Whose an experiment on a shared server is: two sweeps of one name never meet in one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

from accelsweep.errors import DamagedFile
from accelsweep.records.layout import SweepFolder
from accelsweep.tracking.live_publishing import Follower
from accelsweep.tracking.mlflow_run import KEY, SOURCE
from accelsweep.tracking.store import SWEEP, experiment_of, mark_of

pytestmark = pytest.mark.real

Place = Callable[[SweepFolder], str]


@pytest.fixture
def begun(sweep: SweepFolder) -> SweepFolder:
    """The sweep before its first run."""
    shutil.rmtree(sweep.root / "runs")
    return sweep


@pytest.fixture
def other(begun: SweepFolder, tmp_path: Path) -> SweepFolder:
    """Another user's sweep of the same name, before its first run."""
    folder = build_example_sweep(tmp_path / "other", begun.name)
    shutil.rmtree(folder.root / "runs")
    return folder


@pytest.fixture
def place(server: str, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A function that returns the name of a sweep's experiment on the server, as the user `bob`."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "bob")
    client = MlflowClient(server)

    def found(folder: SweepFolder, *records: str) -> str:
        return experiment_of(client, folder, server, records).name

    return found


def test_sweeps_of_one_name_have_experiments_of_their_own_and_keep_them(
    begun: SweepFolder, other: SweepFolder, place: Place, server: str
) -> None:
    from mlflow import MlflowClient

    assert [place(begun), place(other)] == [begun.name, f"{begun.name}-bob"]
    third = build_example_sweep(other.home / "third", begun.name)
    assert place(third) == f"{begun.name}-bob-2"
    client = MlflowClient(server)
    client.rename_experiment(client.get_experiment_by_name(begun.name).experiment_id, f"{begun.name} of May")
    client.delete_experiment(client.get_experiment_by_name(f"{begun.name}-bob").experiment_id)
    assert [place(begun), place(other)] == [f"{begun.name} of May", f"{begun.name}-bob"]
    assert client.get_experiment_by_name(f"{begun.name}-bob").lifecycle_stage == "active"


def test_publishers_that_begin_together_agree(begun: SweepFolder, other: SweepFolder, place: Place) -> None:
    with ThreadPoolExecutor(6) as pool:
        names = list(pool.map(place, [begun, other] * 3))
    assert len(set(names[::2])) == len(set(names[1::2])) == 1
    assert {*names} == {begun.name, f"{begun.name}-bob"}


def test_a_copy_of_the_folder_is_known_by_its_records_and_a_renamed_one_is_not(
    begun: SweepFolder, other: SweepFolder, place: Place, server: str
) -> None:
    from mlflow import MlflowClient

    place(begun)
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name(begun.name).experiment_id
    client.create_run(experiment, tags={KEY: "run:a-r0", SOURCE: "5eed"})
    assert place(other, "5eed", "f00d") == begun.name
    renamed = SweepFolder(begun.home, f"{begun.name}-again")
    shutil.copytree(begun.root, renamed.root)
    assert place(renamed) == renamed.name


def test_an_experiment_that_somebody_made_by_hand_is_taken_while_it_is_empty(
    begun: SweepFolder, other: SweepFolder, place: Place, server: str
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(server)
    experiment = client.create_experiment(begun.name)
    assert [place(begun), place(other)] == [begun.name, f"{begun.name}-bob"]
    assert client.get_experiment(experiment).tags[SWEEP] == mark_of(begun)


def test_a_sweep_that_is_followed_from_its_first_run_costs_another_of_its_name_nothing(
    begun: SweepFolder, other: SweepFolder, server: str, read_store: Callable[..., dict[str, object]]
) -> None:
    Follower(begun, server, print).poll()
    before = dict(read_store(begun, server))
    assert len(before) == 3
    shutil.copytree(
        build_example_sweep(other.home / "later", begun.name).root / "runs" / _first(other),
        other.run(_first(other)),
    )
    Follower(other, server, print).poll()
    assert dict(read_store(begun, server)) == before


def _first(folder: SweepFolder) -> str:
    from accelsweep.records.plan import Manifest

    return Manifest.read(folder.manifest).wanted_runs()[0]


def test_a_damaged_mark_is_named(begun: SweepFolder, place: Place) -> None:
    mark_of(begun)
    begun.mark.write_bytes(begun.mark.read_bytes()[:-9])
    with pytest.raises(DamagedFile, match=r"mark\.json"):
        place(begun)
