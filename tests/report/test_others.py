"""Published values stand beside ours, in another shape and without an interval."""

import pytest

from accelsweep.features.claims.model import ClaimFinding, Claims, ClaimVerdict
from accelsweep.features.claims.report import others_figure
from accelsweep.records.estimates import Estimate
from accelsweep.report.figures.figure import DARK, LIGHT, Figure, Skipped


def claim(value, published, **changes):
    ends = {"value": value or 1.0, "low": (value or 1.0) * 0.9, "high": (value or 1.0) * 1.1}
    here = Estimate(**ends, unit="1/s", confidence=0.95, count=3, reason=None)
    stated = {
        "id": "rate", "statement": "it is fast", "source": "somebody", "figure": "images per second", "analogue": None,
        "metric": "samples_per_second", "claimed": "no figure", "measured": here if value else None,
        "verdict": ClaimVerdict.measured, "reason": "", "differs": (), "cell": "c", "against": None, "labels": ("c",),
        "doubts": (), "published": published,
    }  # fmt: skip
    return ClaimFinding(**(stated | changes))


def drawn(findings, *claims):
    return others_figure(findings.model_copy(update={"sections": {"claims": Claims(figures=claims)}}))


def test_a_published_value_is_relative_to_ours_and_has_no_interval(findings):
    figure = drawn(findings, claim(100.0, {"timm, RTX 3090": 250.0, "me": 50.0}))
    assert isinstance(figure, Figure)
    ours, *others = figure.rows
    assert (ours["kind"], ours["ratio"], ours["low"], ours["high"]) == ("here", 1.0, 0.9, pytest.approx(1.1))
    assert [(row["name"], row["ratio"], row["low"]) for row in others] == [
        ("timm, RTX 3090", 2.5, None),
        ("me", 0.5, None),
    ]
    assert figure.alt == "2 published values beside 1 value measured here."
    assert set(figure.columns) <= set(ours)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_published_values_have_a_shape_of_their_own(findings, palette):
    figure = drawn(findings, claim(100.0, {"me": 50.0}), claim(3.0, {"me": 4.0}, figure="other"))
    chart = figure.draw(palette).to_dict(validate=True)
    marks = [layer["mark"] for layer in chart["layer"] if layer["mark"]["type"] == "point"]
    assert [(mark.get("shape"), mark["filled"]) for mark in marks] == [(None, True), ("diamond", False)]


def test_a_figure_that_was_not_measured_here_is_left_out_and_counted(findings):
    figure = drawn(findings, claim(100.0, {"me": 50.0}), claim(None, {"me": 4.0}))
    assert figure.note == "1 of 2 figures were not measured here."
    assert drawn(findings, claim(None, {"me": 4.0})) == Skipped(
        "others", "no figure that has published values was measured here"
    )


def test_without_published_values_the_reason_names_the_key(findings):
    assert "report.claims" in drawn(findings, claim(100.0, {})).reason
