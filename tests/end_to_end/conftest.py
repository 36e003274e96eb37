"""A user's working directory (see fakes/home.py) with a small experiment, fresh or finished; one where much went on."""

import json
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from home import REPOSITORY, TINY, Home
from polling import PATIENCE_SECONDS, until
from shared_fork_server import beside_the_server
from unusual_home import measure_unusual_settings

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
    """The tiny experiment, interrupted by Ctrl-C and finished by the same command; tests must not change it.

    The command is the wheel's: it finds no checkout, and no home that can be written.
    """

    def make(folder: Path) -> None:
        fonts = str(Path.home() / ".cache" / "matplotlib")  # else it looks for all fonts again, and says so
        outside = {"PYTHONPATH": str(installed), "HOME": "/dev/null/nobody", "MPLCONFIGDIR": fonts}
        made = Home(folder / "home", ACCELSWEEP_LEASES=leases, **outside)
        made.experiment("tiny", TINY)
        process = made.start("run", "experiment=tiny")
        until(lambda: process.poll() is not None or list(made.path.glob("sweeps/tiny/runs/*/record.json")))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_SECONDS)
        told = {"code": process.returncode, "output": output, "kept": made.records("tiny")}
        (folder / "interrupted.json").write_text(json.dumps(told))
        made.keep(made.accelsweep("run", "experiment=tiny"))

    return Home.of_a_finished_command(once("finished", make), ACCELSWEEP_LEASES=leases)


@pytest.fixture(scope="session")
def interrupted(finished: Finished) -> dict[str, Any]:
    """How the first command of the finished sweep ended, and the records that there were then, with their stamps."""
    home, _ = finished
    told: dict[str, Any] = json.loads((home.path.parent / "interrupted.json").read_text())
    return told


@pytest.fixture
def continued(finished: Finished, tmp_path: Path, leases: str) -> Home:
    """A copy of the finished home that a test may go on with."""
    source, _ = finished
    shutil.copytree(source.path, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return Home(tmp_path, ACCELSWEEP_LEASES=leases, **beside_the_server())


@pytest.fixture(scope="session")
def unusual(once: Once, leases: str, empty_database: Path) -> Finished:
    """One finished run of settings that crash, leak, log, last and quote (see fakes/unusual_home.py)."""

    def make(folder: Path) -> None:
        made = Home(folder / "home", ACCELSWEEP_LEASES=leases, **beside_the_server())
        made.path.mkdir()
        shutil.copy(empty_database, made.path)  # else its first run logs to MLflow while the publisher makes one
        measure_unusual_settings(made)

    return Home.of_a_finished_command(once("unusual", make))
