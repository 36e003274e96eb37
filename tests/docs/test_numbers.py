"""Numbers of the code that pages and help repeat, and lists of pages, are those that hold."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from accelsweep.config.sweep_options import LOOKS
from accelsweep.features.projection.scaling import SCALING_TABLE

ROOT = Path(__file__).resolve().parents[2]
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def said(page: str) -> str:
    """A page's text with single spaces: a number may stand at the end of a line."""
    return " ".join((ROOT / page).read_text("utf-8").split())


@pytest.mark.parametrize("page", ["docs/method.md", "docs/versions.md", "src/accelsweep/cli/run_options.py"])
def test_the_looks_are_those_of_the_code(page: str) -> None:
    assert f"after {', '.join(map(str, LOOKS[:-1]))} and {LOOKS[-1]} blocks" in said(page)


def test_the_repeats_of_the_quickstart_are_those_of_its_config() -> None:
    repeats = yaml.safe_load((ROOT / "conf" / "experiment" / "quickstart.yaml").read_text())["repeats"]
    assert f"{WORDS[repeats]} times" in said("docs/first-sweep.md")


def test_the_published_rates_of_several_gpus_are_counted() -> None:
    with SCALING_TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    networks, boards = len(rows[0]) - len(("board", "devices")), {row["board"] for row in rows}
    assert f"of {WORDS[networks]} networks on {WORDS[len(boards)]} kinds of GPU" in said("docs/advise.md")


def test_every_decision_is_listed() -> None:
    index = (ROOT / "docs" / "design" / "README.md").read_text("utf-8")
    pages = sorted((ROOT / "docs" / "design").glob("0*.md"))
    assert [page.name for page in pages if f"({page.name})" not in index] == []


def lines_of_the_evidence() -> set[str]:
    """All lines of the pages of evidence."""
    return {line for page in (ROOT / "docs" / "evidence").glob("*.md") for line in page.read_text().splitlines()}


def test_the_tables_of_the_trust_page_are_lines_of_the_evidence() -> None:
    tables = [line for line in (ROOT / "docs" / "trust.md").read_text("utf-8").splitlines() if line.startswith("|")]
    assert len(tables) > 20
    assert [line for line in tables if line not in lines_of_the_evidence()] == []


def test_the_costs_of_other_tools_are_lines_of_the_evidence() -> None:
    _, begin, rest = (ROOT / "docs" / "comparison.md").read_text("utf-8").partition("<!-- peers: begin")
    block, end, _ = rest.partition("<!-- peers: end -->")
    assert begin
    assert end
    tables = [line for line in block.splitlines() if line.startswith("|")]
    assert [line for line in tables if line not in lines_of_the_evidence()] == []
