"""What tests of several rooms share: builders of fake data from tests/fakes, offered as fixtures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from accelsweep.state.folders import SweepFolder

if TYPE_CHECKING:
    from tiny_supervisor import Supervised

sys.path.insert(0, str(Path(__file__).parent / "fakes"))

hypothesis_settings.register_profile(
    "repeatable",  # a slow disk is no failure, and what fails here fails everywhere
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("repeatable")

SETTINGS = ("ACCELSWEEP_", "MLFLOW_")

# Tests start hundreds of processes: where nobody may keep what it compiled, each would compile our sources anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def the_environment_is_left_as_it_was() -> Iterator[None]:
    """Fail a test that leaves a setting behind: a later test's child processes would read it."""
    before = settings()
    yield
    assert settings() == before


def settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}


@pytest.fixture
def example_sweep(tmp_path: Path) -> SweepFolder:
    """A finished sweep of ten cells in three blocks, every outcome among its runs (see fakes/example_sweep.py)."""
    from example_sweep import build_example_sweep

    return build_example_sweep(tmp_path)


@pytest.fixture
def supervised(tmp_path: Path) -> Supervised:
    """A sweep of its own, with locks of its own, waiting to be planned (see fakes/tiny_supervisor.py)."""
    from tiny_supervisor import Supervised

    return Supervised(tmp_path / "home", tmp_path / "leases")
