"""Projections in the report: apart from measurements, and never in the same words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accelsweep.features.projection.figure import projection_figure
from accelsweep.features.projection.model import FormError, Projection, Projections, Range
from accelsweep.features.projection.report import TITLE, tables
from accelsweep.features.projection.time_model import fitted
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.report.content import build_content
from accelsweep.report.figures.figure import Skipped
from accelsweep.report.markdown import render_markdown
from accelsweep.report.report_files import render_files

ONE = Projection(
    device="l4",
    name="L4",
    form="training, mixed precision",
    rate=Range(value=2800, low=1900, high=4100),
    ratio=Range(value=14, low=9.5, high=21),
    joules_per_sample_at_most=0.038,
    limit="bandwidth",
    source="NVIDIA, a datasheet",
)
NONE = Projection(
    device="t4", name="T4", form="training, 32 bits (TF32)", reason="the datasheet states no peak in tf32"
)
UNSEEN = FormError(
    form="training, mixed precision", count=859, networks=825, devices=12, median_error=0.21, coverage=0.94
)
FOUND = Projections(
    setting="a", label="batch 32", here="a CPU", batch=32, rate_here=200.0, devices=(ONE, NONE), unseen=(UNSEEN,)
)


@pytest.fixture
def projecting(findings: Findings) -> Findings:
    return findings.model_copy(update={"sections": {"projection": FOUND}})


def test_projections_that_differ_have_a_figure_and_a_table_on_demand(
    projecting: Findings, example_sweep: SweepFolder
) -> None:
    fast = ONE.model_copy(update={"device": "h100", "name": "H100", "rate": Range(value=9000, low=6000, high=14000)})
    several = FOUND.model_copy(update={"devices": (ONE, fast, NONE)})
    projecting = projecting.model_copy(update={"sections": {"projection": several}})
    files = render_files(build_content(projecting, example_sweep))
    page, text = files["index.html"], files["report.md"]
    assert TITLE in page
    section = page.partition('<section id="projections"')[2].partition("</section>")[0]
    assert "about 2,800, 1,900 to 4,100 samples/s" in section
    assert "These numbers were not measured" in section
    assert "L4" not in text.partition("## Projections")[0], "it is in neither the summary nor the tables of settings"
    assert "L4" in files["projections.svg"]
    assert "slowest on L4 (training, mixed precision), fastest on H100" in section
    assert '<details class="fold"><summary>Show the 3 projections</summary>' in section


def test_projections_that_say_the_same_are_a_sentence_without_a_figure(projecting: Findings) -> None:
    close = ONE.model_copy(update={"device": "t4", "name": "T4", "rate": Range(value=3100, low=1900, high=4500)})
    alike = [each.model_copy(update={"limit": "starting kernels"}) for each in (ONE, close)]
    found = FOUND.model_copy(update={"devices": (*alike, NONE)})
    findings = projecting.model_copy(update={"sections": {"projection": found}})
    assert tables(findings)[0].summary == (
        "Too small for any of these GPUs: starting kernels limits it. Projected, not measured: about 2,800 to 3,100 "
        "samples/s, about 14x the rate measured here.",
    )
    assert isinstance(projection_figure(findings), Skipped)


def test_a_projection_cannot_be_mistaken_for_a_measurement(projecting: Findings) -> None:
    """Brackets and verdicts are for measurements."""
    (table,) = tables(projecting)
    words = " ".join(entry.text for row in table.rows for entry in row)
    assert "[" not in words
    assert not re.search(r"\b(faster|slower|undecided|same)\b", words)
    columns = table.data[0].keys()
    assert all(name.startswith("projected_") for name in columns if name.endswith((".value", ".low", ".high")))


def test_the_error_of_projections_is_stated_with_them(projecting: Findings) -> None:
    caption = tables(projecting)[0].caption
    assert "859 published rates of 825 networks on 12 devices" in caption
    assert "off by more than 21%" in caption


def test_a_device_that_is_not_projected_has_its_reason(projecting: Findings, example_sweep: SweepFolder) -> None:
    text = render_markdown(build_content(projecting, example_sweep))
    assert "not projected the datasheet states no peak in tf32" in text


def test_a_sweep_that_is_not_projected_has_its_reason(findings: Findings, example_sweep: SweepFolder) -> None:
    old = findings.model_copy(update={"sections": {"projection": Projections(reason="not projected: no counts")}})
    assert "Not projected: no counts" in render_markdown(build_content(old, example_sweep))
    assert TITLE not in render_markdown(build_content(findings, example_sweep))


def test_the_documentation_has_the_numbers_of_the_shipped_fit() -> None:
    """`make projection` prints them; update the page after a new fit."""
    page = (Path(__file__).parents[3] / "docs" / "projection.md").read_text("utf-8")
    for one in fitted().values():
        held = one.unseen_devices
        assert f"| {held.count:,} | {held.networks:,} | {held.devices} | {held.median_error * 100:.1f} %" in page
        assert f"| {held.coverage * 100:.1f} %, 88 % |" in page
