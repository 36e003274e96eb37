"""A user's working directory (see fakes/home.py) with a small experiment, fresh or finished; one where much went on."""

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from home import REPOSITORY, TINY, Home
from shared_fork_server import beside_the_server
from unusual_home import measure_unusual_cells

Finished = tuple[Home, "subprocess.CompletedProcess[str]"]
Once = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def leases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder by which sweeps take turns, for these tests alone: what else runs on the machine is not waited for."""
    return str(tmp_path_factory.mktemp("leases"))


@pytest.fixture
def home(tmp_path: Path, leases: str, empty_database: Path) -> Iterator[Home]:
    made = Home(tmp_path, ACCELSWEEP_LEASES=leases, **beside_the_server())
    shutil.copy(empty_database, tmp_path)  # `finished` makes one of its own
    made.experiment("tiny", TINY)
    yield made
    made.end_processes()


@pytest.fixture(scope="session")
def installed(once: Once) -> Path:
    """A folder to put on PYTHONPATH, with the built wheel unpacked in it as pip would."""

    def make(folder: Path) -> None:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(REPOSITORY)]
        subprocess.run(command, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(folder / "site")

    return once("installed", make) / "site"


@pytest.fixture(scope="session")
def finished(once: Once, leases: str, installed: Path) -> Finished:
    """One finished run of the tiny experiment; tests look at it and must not change it.

    It is the wheel's: its command finds no checkout, and no home that can be written.
    """

    def make(folder: Path) -> None:
        outside = {"PYTHONPATH": str(installed), "HOME": "/dev/null/nobody"}
        made = Home(folder / "home", ACCELSWEEP_LEASES=leases, **outside)
        made.experiment("tiny", TINY)
        made.keep(made.accelsweep("run", "experiment=tiny"))

    return Home.of_a_finished_command(once("finished", make), ACCELSWEEP_LEASES=leases)


@pytest.fixture
def continued(finished: Finished, tmp_path: Path, leases: str) -> Home:
    """A copy of the finished home that a test may go on with."""
    source, _ = finished
    shutil.copytree(source.path, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return Home(tmp_path, ACCELSWEEP_LEASES=leases, **beside_the_server())


@pytest.fixture(scope="session")
def unusual(once: Once, leases: str) -> Finished:
    """One finished run of cells that crash, leak, log, last and quote (see fakes/unusual_home.py), to be looked at."""
    return Home.of_a_finished_command(
        once("unusual", lambda folder: measure_unusual_cells(Home(folder / "home", ACCELSWEEP_LEASES=leases)))
    )
