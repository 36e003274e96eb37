"""Writing a report: deterministic, atomic, and without touching the user's files."""

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from markdown_it import MarkdownIt

from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.report import report_files
from accelsweep.report.captions import CAPTIONS
from accelsweep.report.content import build_content
from accelsweep.report.report_files import write_report
from accelsweep.results import Outcome

pytestmark = pytest.mark.heavy


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.report.iterdir())}


def test_the_report_has_a_page_markdown_pictures_and_data(sweep):
    assert write_report(sweep) == sweep.report / "index.html"
    names = set(contents(sweep))
    assert {
        "index.html",
        "report.md",
        "speedup.svg",
        "speedup.csv",
        "settings.csv",
        "unmeasured.csv",
        "runs.csv",
    } <= names
    drawn = {figure.name for figure in build_content(Findings.read(sweep.findings), sweep).figures}
    assert drawn < set(CAPTIONS)
    assert {name.removesuffix(".svg") for name in names if name.endswith(".svg")} == drawn
    assert not [path for path in sweep.report.parent.iterdir() if path.name.startswith(".")]


def test_findings_and_report_import_neither_pandas_nor_what_the_terminal_needs(example_sweep):
    """Each of these imports takes as long as everything else that this step does for a small sweep."""
    code = (
        "import sys; from pathlib import Path; from accelsweep.analysis.analyse_sweep import analyse_folder; "
        "from accelsweep.records.layout import SweepFolder; from accelsweep.report.report_files import write_report; "
        f"folder = SweepFolder.of(Path({str(example_sweep.root)!r})); "
        "analyse_folder(folder).write(folder.findings); write_report(folder); "
        "print(sorted(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    heavy = {"pandas", "pyarrow.dataset", "rich", "typer", "torch", "accelsweep.executor.attempt"}
    assert heavy.isdisjoint(ast.literal_eval(printed))


def test_the_same_inputs_give_the_same_bytes_in_another_process(sweep):
    write_report(sweep)
    first = contents(sweep)
    code = (
        "from pathlib import Path; from accelsweep.records.layout import SweepFolder; "
        "from accelsweep.report.report_files import write_report; "
        f"print(write_report(SweepFolder.of(Path({str(sweep.root)!r}))))"
    )
    command = [sys.executable, "-X", "utf8", "-c", code]
    variables = {**os.environ, "PYTHONHASHSEED": "99"}
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=variables)
    assert printed.stdout.strip() == str(sweep.report / "index.html")
    assert contents(sweep) == first


def test_hostile_texts_do_not_break_any_file(hostile_sweep):
    write_report(hostile_sweep)
    for name, content in contents(hostile_sweep).items():
        text = content.decode("utf-8")
        assert not {"\x00", "\u202e"} & set(text), name
        if name.endswith(".svg"):
            ElementTree.fromstring(text)
    rendered = MarkdownIt("commonmark").enable("table").render((hostile_sweep.report / "report.md").read_text("utf-8"))
    assert "<script" not in rendered
    assert "<img src=x" not in rendered.replace("&lt;img", "")


def test_the_markdown_renders_as_tables_with_pictures(sweep):
    write_report(sweep)
    html = MarkdownIt("commonmark").enable("table").render((sweep.report / "report.md").read_text("utf-8"))
    assert html.count("<table>") == 6
    assert '<img src="speedup.svg"' in html
    assert "2.25x [2.22, 2.29]" in html
    assert "Rate against cost: not drawn" in html


def test_the_files_of_what_no_longer_applies_are_removed_and_other_files_are_kept(sweep, findings):
    write_report(sweep)
    assert {"scaling.svg", "scaling.csv", "unmeasured.csv"} <= contents(sweep).keys()
    for name in ("notes.csv", "heatmap-of-mine.svg"):
        (sweep.report / name).write_text("mine")
    settings = tuple(setting for setting in findings.settings if setting.outcomes.keys() == {Outcome.measured})
    findings.model_copy(update={"scaling": (), "settings": settings, "excluded": ()}).write(sweep.findings)
    write_report(sweep)
    assert not {"scaling.svg", "scaling.csv", "unmeasured.csv"} & contents(sweep).keys()
    assert "no setting was measured at two device counts" in contents(sweep)["index.html"].decode()
    assert contents(sweep)["notes.csv"] == contents(sweep)["heatmap-of-mine.svg"] == b"mine"


def test_a_sweep_with_uninformative_intervals_is_reported_like_any_other(sweep, findings):
    """Two runs on a busy machine once gave intervals from 1e-18 to 1e27, and no report."""
    nothing = {"low": 1e-40, "high": 1e40}
    settings = tuple(
        setting.model_copy(
            update={
                "rate": setting.rate and setting.rate.model_copy(update=nothing),
                "speedup": setting.speedup
                and setting.speedup.model_copy(update={"ratio": setting.speedup.ratio.model_copy(update=nothing)}),
            }
        )
        for setting in findings.settings
    )
    findings.model_copy(update={"settings": settings}).write(sweep.findings)
    write_report(sweep)
    assert "not known yet" in (sweep.report / "report.md").read_text("utf-8")
    assert "1e-40" in (sweep.report / "settings.csv").read_text("utf-8")


def test_a_full_disk_leaves_the_old_report_intact(sweep, monkeypatch):
    write_report(sweep)
    before = contents(sweep)

    def fail_late(path, content):
        if path.name == "report.md":
            raise OSError(28, "No space left on device", str(path))
        path.open("wb").write(content)

    monkeypatch.setattr(report_files.Path, "write_bytes", fail_late)
    with pytest.raises(AccelsweepError, match=r"cannot write the report: .*No space left on device"):
        write_report(sweep)
    monkeypatch.undo()
    assert contents(sweep) == before
    assert not list(sweep.report.parent.glob(".*"))


def test_without_findings_the_error_names_the_command_that_makes_them(tmp_path):
    with pytest.raises(InputError, match=r"findings\.json is missing; generate it with: accelsweep report empty"):
        write_report(SweepFolder(tmp_path, "empty"))


def test_damaged_findings_are_an_error_that_names_the_file(sweep):
    sweep.findings.write_text(sweep.findings.read_text().replace("example", "exxmple", 1))
    with pytest.raises(DamagedFile, match=r"findings\.json: its contents do not match its checksum"):
        write_report(sweep)
