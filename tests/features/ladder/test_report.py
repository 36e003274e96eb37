"""The ladder as a table, a figure and lines of text."""

from __future__ import annotations

from typing import Any

import pytest
import vl_convert

from accelsweep.features.ladder.figure import ladder_figure
from accelsweep.features.ladder.model import Ladder, Rung
from accelsweep.features.ladder.report import in_one_line, tables
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.report.figures.figure import DARK, LIGHT, Skipped
from accelsweep.report.html_page import vega_lite_version


def estimate(value: float, unit: str) -> Estimate:
    """Return a value with an interval of 10 % on both sides."""
    return Estimate(value=value, low=0.9 * value, high=round(1.1 * value, 9), unit=unit, confidence=0.95, count=3)


def rung(step: str, rate: float | None, gain: float | None = None, **changes: Any) -> Rung:
    """Return a rung of a ladder; `gain` is both over the rung before and over the first."""
    ratio = estimate(gain, "1") if gain else None
    verdict = Verdict.faster if gain else Verdict.baseline
    values: dict[str, Any] = {
        "ladder": "all settings",
        "hardware": "example-host",
        "step": step,
        "setting": step,
        "rate": estimate(rate, "1/s") if rate else None,
        "before": "0_naive" if gain else None,
        "gain": ratio,
        "verdict": verdict,
        "total": ratio,
        "total_verdict": verdict,
        "reason": "",
    }
    return Rung.model_validate(values | changes)


NAIVE, BATCH = rung("0_naive", 100.0), rung("1_larger_batch", 200.0, 2.0)
UNSUPPORTED = rung(
    "2_channels_last",
    None,
    verdict=Verdict.not_measured,
    total_verdict=Verdict.not_measured,
    reason="no such key",
)


@pytest.fixture
def with_rungs(findings):
    """A function that returns findings with these rungs."""
    return lambda *rungs: findings.model_copy(update={"sections": {"ladder": Ladder(rungs=rungs)}})


def test_the_table_has_a_row_for_each_rung_measured_or_not(findings, with_rungs):
    assert tables(findings) == []
    (table,) = tables(with_rungs(NAIVE, BATCH, UNSUPPORTED))
    naive, batch, unsupported = ([(entry.text, entry.detail) for entry in row] for row in table.rows)
    assert [naive[0], naive[2], naive[3]] == [("naive", "example-host"), ("-", ""), ("first rung", "")]
    assert batch[0] == ("larger batch", "example-host")
    assert batch[2] == ("2.0x", "[1.8, 2.2] over naive")
    assert batch[4] == ("2.0x", "[1.8, 2.2]")
    assert unsupported[1:4] == [("not measured", ""), ("not measured", ""), ("not measured", "no such key")]
    assert (table.data[1]["gain.low"], table.data[2]["gain.low"]) == (1.8, None)


def test_each_rung_has_a_line_with_its_gain_or_its_reason():
    assert in_one_line(NAIVE) == "naive: 100 samples/s [90, 110]"
    assert in_one_line(BATCH) == "larger batch: 2.0x [1.8, 2.2] over naive (faster), 2.0x [1.8, 2.2] in all"
    assert in_one_line(UNSUPPORTED) == "channels last: not measured (no such key)"
    refused = {"gain": None, "verdict": Verdict.refused, "total": None, "total_verdict": Verdict.refused}
    other = BATCH.model_copy(update={**refused, "reason": "torch differs"})
    assert in_one_line(other) == "larger batch: 200 samples/s [180, 220], refused (torch differs)"
    without_total = BATCH.model_copy(update={"total": None, "total_verdict": Verdict.refused})
    assert in_one_line(without_total) == "larger batch: 2.0x [1.8, 2.2] over naive (faster), refused in all"


def test_the_figure_names_rungs_without_a_mark_too(with_rungs):
    figure = ladder_figure(with_rungs(NAIVE, BATCH, UNSUPPORTED))
    assert [row["ratio"] for row in figure.rows] == [1.0, 2.0, None]
    assert figure.alt == "Speed-up over the first rung: naive 1x by definition; larger batch 2.0x [1.8, 2.2]."
    assert figure.rows[2]["reason"] == "no such key"
    for palette in (LIGHT, DARK):
        figure.draw(palette).to_dict(validate=True)
        svg = vl_convert.vegalite_to_svg(figure.static_specification(palette), vega_lite_version())
        assert all(f">{name}</text>" in svg for name in ("naive", "larger batch", "channels last"))


def test_a_single_measured_rung_is_not_drawn(with_rungs):
    reason = "fewer than two rungs were measured"
    assert ladder_figure(with_rungs(NAIVE, UNSUPPORTED)) == Skipped("ladder", reason)


def test_a_rung_that_cannot_be_compared_has_a_reason_instead_of_a_ratio(with_rungs):
    refused = {"verdict": Verdict.refused, "total_verdict": Verdict.refused, "reason": "torch is 2.12.0, not 2.13.0"}
    other = BATCH.model_copy(update={"step": "2_other", "gain": None, "total": None, **refused})
    after = BATCH.model_copy(update={"step": "3_after", "total": None, "total_verdict": Verdict.refused})
    figure = ladder_figure(with_rungs(NAIVE, BATCH, other, after))
    assert [(row["ratio"], row["reason"], row["gained"]) for row in figure.rows] == [
        (1.0, "", "the first rung"),
        (2.0, "", "2.0x [1.8, 2.2]"),
        (None, "torch is 2.12.0, not 2.13.0", "refused"),
        (None, "refused: not comparable with the first rung", "2.0x [1.8, 2.2]"),
    ]
    assert "other" not in figure.alt
    assert figure.alt.count("by definition") == 1
    assert ladder_figure(with_rungs(NAIVE, other)).reason == "fewer than two rungs can be compared"
