"""Sweeps in memory for the analysis: the modules of tests/fakes as fixtures."""

from __future__ import annotations

from types import ModuleType

import pytest


@pytest.fixture
def simulated() -> ModuleType:
    """The builders of simulated_sweep.py: make_manifest, make_run, name_of."""
    import simulated_sweep

    return simulated_sweep
