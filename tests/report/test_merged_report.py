"""One report of several sweeps: its folder, its name, and the steps of all of them."""

import pytest
from example_sweep import build_example_sweep

from accelsweep.driver.finalize import report_sweeps
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MergedPlace
from accelsweep.records.plan import MAX_NAME_LENGTH, joined_name

pytestmark = pytest.mark.heavy


def test_the_name_is_the_sweeps_names_in_their_order():
    assert joined_name(["a", "b-1", "c"]) == "a+b-1+c"


def test_a_long_name_is_shortened_and_stays_unique():
    names = [f"{letter * 60}" for letter in "abc"]
    short = joined_name(names)
    assert short.startswith("a" * 60 + "+2-more-")
    assert len(short) <= MAX_NAME_LENGTH
    assert short != joined_name([names[0], names[2], names[1]])


def test_two_sweeps_become_one_report_with_the_steps_of_both(tmp_path):
    for name in ("one", "two"):
        build_example_sweep(tmp_path, name)
    page = report_sweeps(tmp_path, ["one", "two", "one"])
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
    assert report_sweeps(tmp_path, ["one", "one"]) == tmp_path / "reports" / "one" / "index.html"
