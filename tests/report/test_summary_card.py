"""The summary card has the answer, its doubt and its origin in one picture."""

import io
import xml.etree.ElementTree as ElementTree

import pytest
from PIL import Image
from typer.testing import CliRunner

from accelsweep.cli import app
from accelsweep.records.findings import Certainty
from accelsweep.report.content import build_content
from accelsweep.report.report_files import write_files, write_report
from accelsweep.report.summary_card import SUMMARY_PNG, SUMMARY_SVG, WIDTH, render_summary, summary_svg


def words(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.text and element.text.strip()]


def test_the_card_has_headline_certainty_forest_doubt_and_provenance(findings, sweep):
    shown = words(summary_svg(build_content(findings, sweep)))
    for text in (
        "accelsweep · example",
        findings.recommendation.headline,
        "sure",
        "rate relative to the baseline (dots: repeats)",
    ):
        assert text in shown
    assert "Other work kept the processor busy." in shown
    origin = " ".join(shown)
    for text in ("example-host", "torch 2.13.0", "2026-01-05", findings.records_sha256):
        assert text in origin


@pytest.mark.parametrize("certainty", Certainty)
def test_a_card_has_every_certainty(certainty, findings, sweep):
    advice = findings.recommendation.model_copy(update={"certainty": certainty})
    findings = findings.model_copy(update={"recommendation": advice})
    assert findings.certainty in words(summary_svg(build_content(findings, sweep)))


def test_the_card_of_a_single_setting_has_its_numbers_in_place_of_a_forest(findings, sweep):
    content = build_content(findings.model_copy(update={"settings": findings.settings[:1]}), sweep)
    shown = words(summary_svg(content))
    assert "rate relative to the baseline (dots: repeats)" not in shown
    assert {tile.value for tile in content.tiles} <= set(shown)


def test_the_card_of_a_long_sweep_has_the_lines_of_the_first_screen(findings, sweep):
    many = (*findings.settings[:1], *findings.settings[2:3] * 20)
    svg = summary_svg(build_content(findings.model_copy(update={"settings": many}), sweep))
    assert "8 of 21 settings: the fastest, and the baseline." in words(svg)


@pytest.mark.parametrize("of", ["findings", "hostile_findings"])
def test_the_picture_has_twice_as_many_pixels_and_any_text_is_only_text(of, request, sweep):
    files = render_summary(build_content(request.getfixturevalue(of), sweep))
    svg = ElementTree.fromstring(files[SUMMARY_SVG])
    picture = Image.open(io.BytesIO(files[SUMMARY_PNG]))
    assert picture.size == (2 * WIDTH, 2 * int(svg.get("height")))
    assert not [element for element in svg.iter() if element.tag.endswith("script")]


def test_a_card_is_written_on_request_and_kept_up_to_date(findings, sweep):
    write_report(sweep)
    assert not (sweep.report / SUMMARY_SVG).exists()
    write_report(sweep, summary=True)
    first = (sweep.report / SUMMARY_PNG).read_bytes()
    findings.model_copy(update={"records_sha256": "cd" * 32}).write(sweep.findings)
    assert SUMMARY_PNG not in write_files(sweep), (
        "archives have no card, as it is not what their records must reproduce"
    )
    assert "cd" * 32 in (sweep.report / SUMMARY_SVG).read_text("utf-8")
    assert (sweep.report / SUMMARY_PNG).read_bytes() != first


def test_the_command_prints_where_the_card_is(example_sweep, monkeypatch):
    monkeypatch.chdir(example_sweep.home)
    result = CliRunner().invoke(app, ["report", example_sweep.name, "--summary"])
    assert f"card: {example_sweep.report / SUMMARY_PNG} and {SUMMARY_SVG}" in result.output.replace("\n", "")
    assert (example_sweep.report / SUMMARY_PNG).read_bytes().startswith(b"\x89PNG")
