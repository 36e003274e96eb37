"""A user's working directory (see fakes/home.py) with a small experiment, fresh or finished."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from home import TINY, Home


@pytest.fixture(scope="session")
def leases(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder by which sweeps take turns, for these tests alone: what else runs on the machine is not waited for."""
    return str(tmp_path_factory.mktemp("leases"))


@pytest.fixture
def home(tmp_path: Path, leases: str) -> Iterator[Home]:
    made = Home(tmp_path, ACCELSWEEP_LEASES=leases)
    made.experiment("tiny", TINY)
    yield made
    made.end_processes()


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, leases: str) -> tuple[Home, "subprocess.CompletedProcess[str]"]:
    """One finished run of the tiny experiment; tests look at it and must not change it."""
    made = Home(tmp_path_factory.mktemp("finished"), ACCELSWEEP_LEASES=leases)
    made.experiment("tiny", TINY)
    return made, made.accelsweep("run", "experiment=tiny")


@pytest.fixture
def continued(finished: tuple[Home, object], tmp_path: Path, leases: str) -> Home:
    """A copy of the finished home that a test may go on with."""
    source, _ = finished
    shutil.copytree(source.path, tmp_path, dirs_exist_ok=True, copy_function=shutil.copy2)
    return Home(tmp_path, ACCELSWEEP_LEASES=leases)
