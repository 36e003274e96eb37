"""Writing a report: deterministic, atomic, and without touching the user's files."""

import ast
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from markdown_it import MarkdownIt

from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.records.layout import SweepFolder
from accelsweep.report import report_files
from accelsweep.report.captions import CAPTIONS
from accelsweep.report.report_files import main, write_report

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
    assert {name.removesuffix(".svg") for name in names if name.endswith(".svg")} == set(CAPTIONS)
    assert not [path for path in sweep.report.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("step", ["analysis.analyse_sweep", "report.report_files"])
def test_the_last_steps_import_neither_pandas_nor_what_the_terminal_needs(sweep, step):
    """Each import takes longer than everything else that these steps do for a small sweep."""
    code = f"import sys; from accelsweep.{step} import main; main(sys.argv[1:]); print(sorted(sys.modules))"
    command = [sys.executable, "-c", code, str(sweep.root)]
    imported = set(
        ast.literal_eval(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    )
    assert imported.isdisjoint({"pandas", "pyarrow.dataset", "rich", "typer", "torch", "accelsweep.executor.attempt"})


def test_the_same_inputs_give_the_same_bytes_in_another_process(sweep):
    write_report(sweep)
    first = contents(sweep)
    command = [sys.executable, "-X", "utf8", "-m", "accelsweep.report.report_files", str(sweep.root)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "99"})
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


def test_a_figure_that_is_no_longer_drawn_becomes_a_placeholder_and_other_files_are_kept(sweep, findings):
    write_report(sweep)
    (sweep.report / "notes.csv").write_text("mine")
    findings.model_copy(update={"scaling": ()}).write(sweep.findings)
    write_report(sweep)
    assert "Not drawn: no setting was measured at two device counts" in (sweep.report / "scaling.svg").read_text(
        "utf-8"
    )
    assert not (sweep.report / "scaling.csv").exists()
    assert (sweep.report / "notes.csv").read_text() == "mine"


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


def test_without_findings_the_error_names_the_command_that_makes_them(tmp_path, capsys):
    folder = SweepFolder(tmp_path, "empty")
    folder.root.mkdir(parents=True)
    with pytest.raises(
        InputError, match=r"findings\.json is missing; generate it with `python -m accelsweep\.analysis\.analyse_sweep"
    ):
        write_report(folder)
    assert main([str(folder.root)]) == 2
    assert "findings.json is missing" in capsys.readouterr().err


def test_damaged_findings_are_an_error_that_names_the_file(sweep):
    sweep.findings.write_text(sweep.findings.read_text().replace("example", "exxmple", 1))
    with pytest.raises(DamagedFile, match=r"findings\.json: its contents do not match its checksum"):
        write_report(sweep)
