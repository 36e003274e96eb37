"""The storm's seeds, its place to happen in, and the sweep that it begins with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_home import running_cluster

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The tests' Slurm, started if need be, stopped at the end."""
    yield from running_cluster()
