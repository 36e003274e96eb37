"""Faults drawn from a grammar over real sweeps: whatever happens, the same command completes the sweep.

`make storm SEEDS=0-999` draws other cases. Each is made again by its number alone: STORM_SEEDS=17.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grammar import case_of
from home import TINY, Home
from storm import Place, Storm, asked_seeds, weather

pytestmark = [pytest.mark.real, pytest.mark.storm, pytest.mark.timeout(1200)]

SEEDS = range(100)
"""They are long because a case measures one sweep or two. tests/faults strikes drivers and executors one by one."""

MOST_BYTES = 2**30
"""No file of a case grows larger: a copy of /dev/zero would fill the disk."""
SMALL = TINY + "limits: {free_disk_bytes: 1000000}\n"
SMALL = SMALL.replace("batch_size: 16,32", "devices: 1,2").replace("{batch_size: 16}", "{devices: 1}")


@pytest.fixture(scope="module")
def storm_place(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[Place]:
    """A worker's place with a measured sweep of one block, made at the path where all cases happen."""
    from shared_fork_server import beside_the_server

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, limits[1]))
    folder = tmp_path_factory.mktemp("storm")
    made = Place(folder, Path(tempfile.mkdtemp(prefix="storm-", dir="/tmp")), beside_the_server())
    home = Home(made.home, **made.environment())
    home.experiment("tiny", SMALL)
    shutil.copy(empty_database, made.empty_database)
    shutil.copy(empty_database, home.path / "mlflow.db")
    result = home.accelsweep("run", "experiment=tiny", "repeats=1")
    assert result.returncode == 0, result.stdout
    made.home.rename(made.base)
    yield made
    shutil.rmtree(made.temporary, ignore_errors=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("seed", asked_seeds(SEEDS))
def test_the_same_command_completes_a_sweep_through_any_faults(
    storm_place: Place, seed: int, record_property: Callable[[str, object], None]
) -> None:
    weather(Storm(storm_place, case_of(seed)), storm_place.folder / f"failed-{seed}", record_property)
