"""What tests of this room share: a real supervisor with misbehaving ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_supervisor import Supervised


@pytest.fixture
def supervised(tmp_path: Path) -> Supervised:
    """A sweep of its own, with locks of its own, waiting to be planned (see fakes/tiny_supervisor.py)."""
    return Supervised(tmp_path / "home", tmp_path / "leases")
