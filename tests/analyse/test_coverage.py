"""The fast half of benchmarks/coverage.py: intervals hold the truth, and equal cells are seldom told apart."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SWEEPS = 80


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    """benchmarks/coverage.py as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("scenario", ["normal", "t3", "bimodal", "drift"])
def test_intervals_hold_together_and_equal_cells_look_equal(coverage: ModuleType, scenario: str) -> None:
    """The gates are those of the benchmark (94 %, 5 %), less what 80 sweeps instead of 1000 leave to chance."""
    held, alarms = coverage.rates(coverage.GATED[scenario], SWEEPS, 5)
    assert held >= 0.90
    assert alarms <= 0.08
