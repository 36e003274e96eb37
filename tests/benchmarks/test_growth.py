"""The grids and slopes of `benchmarks/growth.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.planning.plan import make_plan

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def growth(monkeypatch):
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import growth

    return growth


@pytest.mark.parametrize("settings", [10, 20, 100, 1000])
def test_a_grid_has_as_many_settings_as_requested(growth, tmp_path, settings):
    plan = make_plan(tmp_path, growth.grid(settings, 2))
    assert len(plan.settings) == settings
    assert plan.manifest.options.repeats == 2


def test_a_slope_is_that_of_the_logarithms(growth):
    seconds = {10: 1.0, 100: 10.0, 1000: 1000.0}
    found = {size: {"plan": growth.Cost(2 * one, one, 50.0)} for size, one in seconds.items()}
    found[100]["no-op"] = growth.Cost(1.0, 0.5, 80.0)
    assert growth.rows(found)[2:] == [
        "| plan | 10 | 2.0 | 1.0 | 50 | | |",
        "| plan | 100 | 20.0 | 10.0 | 50 | 1.00 | 0.00 |",
        "| plan | 1,000 | 2000.0 | 1000.0 | 50 | 2.00 | 0.00 |",
        "| no-op | 100 | 1.0 | 0.5 | 80 | | |",
    ]
