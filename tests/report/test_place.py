"""Several sweeps have one report: where it goes, how it is called, and that their steps are found."""

import pytest
from example_sweep import build_example_sweep

from accelsweep.driver.finalize import report
from accelsweep.features.imports.model import ExternalResults, ExternalRow
from accelsweep.features.imports.report import rows_of
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MergedPlace
from accelsweep.records.plan import LONGEST, name_together

pytestmark = pytest.mark.heavy


def test_the_name_is_the_sweeps_names_in_their_order():
    assert name_together(["a", "b-1", "c"]) == "a+b-1+c"


def test_a_long_name_stays_short_and_tells_other_sweeps_apart():
    names = [f"{letter * 60}" for letter in "abc"]
    short = name_together(names)
    assert short.startswith("a" * 60 + "+2-more-")
    assert len(short) <= LONGEST
    assert short != name_together([names[0], names[2], names[1]])


def test_two_sweeps_become_one_report_with_the_steps_of_both(tmp_path):
    for name in ("one", "two"):
        build_example_sweep(tmp_path, name)
    page = report(tmp_path, ["one", "two", "one"])
    assert page == tmp_path / "reports" / "one+two" / "index.html"
    findings = Findings.read(MergedPlace(tmp_path, ("one", "two")).findings)
    assert findings.merged == ("one", "two")
    assert findings.planned_runs == 48
    text = page.read_text("utf-8")
    assert "sweeps merged by hardware" in text
    assert "accelsweep report one two" in text
    steps = (page.parent / "steps.csv").read_text("utf-8")
    assert "one/" in steps
    assert "two/" in steps
    assert not (tmp_path / "sweeps" / "one+two").exists()


def test_one_sweep_named_twice_is_that_sweep(tmp_path):
    build_example_sweep(tmp_path, "one")
    assert report(tmp_path, ["one", "one"]) == tmp_path / "reports" / "one" / "index.html"


def test_imported_rows_stand_in_a_merged_report_and_change_no_number(tmp_path):
    """They have a table of their own, with their source; the findings are otherwise the same."""
    for name in ("one", "two"):
        build_example_sweep(tmp_path, name)
    report(tmp_path, ["one", "two"])
    place = MergedPlace(tmp_path, ("one", "two"))
    before = Findings.read(place.findings)
    row = ExternalRow(model="small_cnn", task="training", value=1234.5, unit="1/s", device="RTX 3090", devices=1)
    rows = ExternalResults(source="timm", file="theirs.csv", sha256="0" * 64, rows=(row,))
    (tmp_path / "external").mkdir()
    rows.write(tmp_path / "external" / "timm-theirs.json")
    text = report(tmp_path, ["one", "two"]).with_name("report.md").read_text("utf-8")
    assert "## Measured by others" in text
    assert "timm theirs.csv" in text.replace("\\", "")
    assert "1,234.5 samples/s" in text
    after = Findings.read(place.findings)
    assert [one.row for one in rows_of(after)] == [row]
    assert (
        after.model_copy(update={"sections": {name: one for name, one in after.sections.items() if name != "imports"}})
        == before
    )
    assert "Measured by others" not in report(tmp_path, ["one"]).read_text("utf-8")
