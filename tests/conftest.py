"""What tests of several rooms share: builders of fake data from tests/fakes, offered as fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from accelsweep.core.folders import SweepFolder

sys.path.insert(0, str(Path(__file__).parent / "fakes"))


@pytest.fixture
def example_sweep(tmp_path: Path) -> SweepFolder:
    """A finished sweep of ten cells in three blocks, every outcome among its runs (see fakes/example_sweep.py)."""
    from example_sweep import build_example_sweep

    return build_example_sweep(tmp_path)
