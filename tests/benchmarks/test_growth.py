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
    assert [line for line in growth.rows(found)[2:] if "not measured" not in line] == [
        "| plan | 10 | 2.0 | 1.0 | 50 | | |",
        "| plan | 100 | 20.0 | 10.0 | 50 | 1.00 | 0.00 |",
        "| plan | 1,000 | 2000.0 | 1000.0 | 50 | 2.00 | 0.00 |",
        "| no-op | 100 | 1.0 | 0.5 | 80 | | |",
    ]


def test_a_size_that_was_not_published_is_a_row_and_not_a_gap(growth):
    cost = growth.Cost(2.0, 1.0, 50.0)
    found = {10: dict.fromkeys(growth.PARTS, cost), 100: dict.fromkeys(("plan", "report", "no-op"), cost)}
    assert "| publish | 100 | not measured | | | | |" in growth.rows(found)
    assert "With 100 settings or more, nothing was published" in growth.page(found, 3, "growth.svg")
    assert "nothing was published" not in growth.page({10: found[10]}, 3, "growth.svg")


def test_the_drawing_has_a_line_for_each_command_in_both_panels(growth, tmp_path):
    cost = growth.Cost(2.0, 1.0, 50.0)
    growth.draw(
        {10: dict.fromkeys(growth.PARTS, cost), 100: dict.fromkeys(growth.PARTS, cost)}, tmp_path / "growth.svg"
    )
    drawn = (tmp_path / "growth.svg").read_text()
    assert all(f">{word}</text>" in drawn for word in (*growth.PARTS, "settings", "CPU seconds", "MiB"))
