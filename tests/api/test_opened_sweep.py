"""An opened sweep has the numbers of its report, under names with units, and is never changed."""

from __future__ import annotations

import gc
import shutil
import tempfile

import altair as alt
import pandas as pd
import pytest
import vl_convert
from example_sweep import build_example_sweep

import accelsweep
from accelsweep.api import settings_frame
from accelsweep.driver.finalize import finalize, report_sweeps
from accelsweep.errors import DamagedFile, InputError
from accelsweep.features.archives.command import export_sweep
from accelsweep.files import sha256_file
from accelsweep.metrics import metrics
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.report.html_page import vega_lite_version

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folder(once):
    """The example sweep with its report; tests must not change it."""
    return SweepFolder(once("opened", lambda home: finalize(build_example_sweep(home))), "example")


@pytest.fixture(scope="module")
def sweep(folder):
    return accelsweep.open(folder.root)


def stamps(root):
    return {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}


def test_findings_are_those_of_the_report(sweep, folder):
    assert sweep.findings == Findings.read(folder.findings)
    assert sweep.name == "example"


def test_runs_are_those_of_the_table_of_records(sweep, folder):
    table = pd.read_parquet(folder.records)
    assert list(sweep.runs["run"].dropna()) == list(table["run"].dropna())
    assert list(sweep.runs["outcome"]) == list(table["outcome"])
    measured = sweep.runs[sweep.runs["outcome"] == "measured"]
    pd.testing.assert_series_equal(
        measured["samples_per_second"], table.loc[measured.index, "samples_per_second"], check_names=False
    )
    assert set(sweep.runs.loc[sweep.runs["outcome"] != "measured", "reason"].isna()) == {False}
    assert sweep.runs["started_at"].dt.tz is not None
    assert sorted(set(measured["axis.batch_size"])) == [32, 128]


def test_invalid_unicode_is_escaped(sweep):
    settings = (sweep.findings.settings[0].model_copy(update={"label": "\ud800"}), *sweep.findings.settings[1:])
    frame = settings_frame(sweep.findings.model_copy(update={"settings": settings}))
    assert frame["label"][0] == "\\ud800"


def test_a_metric_without_a_value_is_missing_and_never_zero(sweep, folder):
    failed = sweep.runs[sweep.runs["outcome"] != "measured"]
    measured = [column for column in sweep.runs.columns if column in metrics()]
    assert measured
    assert len(failed) > 0
    assert failed[measured].isna().all().all()


def test_settings_have_rate_ratio_and_the_ends_of_their_intervals(sweep):
    settings = sweep.settings.set_index("setting")
    assert len(settings) == len(sweep.findings.settings)
    for setting in sweep.findings.settings:
        row = settings.loc[setting.setting]
        assert row["verdict"] == setting.verdict
        if setting.rate is not None:
            found = [row[f"samples_per_second{end}"] for end in ("_low", "", "_high")]
            stated = (setting.rate.low, setting.rate.value, setting.rate.high)
            assert found == pytest.approx([float("nan") if end is None else end for end in stated], nan_ok=True)
        if setting.speedup is not None and setting.speedup.ratio.low is not None:
            assert row["speedup_ratio_low"] <= row["speedup_ratio"] == setting.speedup.ratio.value
        elif setting.speedup is None:
            assert pd.isna(row["speedup_ratio"])


def test_steps_are_those_of_the_runs_file(sweep, folder):
    run = sweep.runs.loc[sweep.runs["outcome"] == "measured", "run"].iloc[0]
    steps = sweep.steps(run)
    assert len(steps) == len(pd.read_parquet(folder.steps(run)))
    assert set(steps["phase"]) == {"warmup", "window"}
    assert (steps["step_seconds"] > 0).all()


def test_a_run_without_steps_says_why(sweep):
    failed = sweep.runs[sweep.runs["outcome"] == "not_run"].iloc[0]
    with pytest.raises(InputError, match="has no steps: not_run: "):
        sweep.steps(failed["run"])
    name = sweep.runs["run"].iloc[0]
    with pytest.raises(InputError, match=f"did you mean '{name}'"):
        sweep.steps(name.replace("-r", "-"))


def test_every_figure_of_the_report_is_an_equal_altair_chart(sweep, folder):
    assert {"speedup", "throughput", "steps"} <= set(sweep.figures)
    for name in sweep.figures:
        chart = sweep.figure(name)
        assert isinstance(chart, alt.LayerChart)
    drawn = vl_convert.vegalite_to_svg(sweep.figure("speedup").to_dict(), vega_lite_version())
    assert f"{drawn}\n" == (folder.report / "speedup.svg").read_text()


def test_a_missing_figure_says_why(sweep):
    with pytest.raises(InputError, match="did you mean 'speedup'"):
        sweep.figure("speedups")
    with pytest.raises(InputError, match="'ladder' cannot be drawn for example: "):
        sweep.figure("ladder")


def test_a_notebook_shows_the_first_screen_of_the_report(sweep, folder):
    shown = sweep._repr_html_()
    page = (folder.report / "index.html").read_text()
    advice = sweep.findings.recommendation
    for words in (advice.headline, advice.detail, advice.certainty, "busy_cpu", "Memory", "accelsweep run"):
        assert words in shown
        assert words in page
    assert "<script" not in shown
    assert "example" in repr(sweep)


def test_markup_in_labels_is_escaped(tmp_path):
    folder = build_example_sweep(tmp_path)
    manifest = Manifest.read(folder.manifest)
    manifest.model_copy(update={"experiment": "<img src=x onerror=alert(1)>"}).write(folder.manifest)
    shown = accelsweep.open(folder.root)._repr_html_()
    assert "<img" not in shown
    assert "&lt;img" in shown


def test_nothing_is_written_not_even_for_a_damaged_record(tmp_path):
    folder = build_example_sweep(tmp_path)
    damaged = folder.latest_records()[0]
    damaged.write_text("{")
    before = stamps(tmp_path)
    sweep = accelsweep.open(folder.root)
    row = sweep.runs[sweep.runs["run"] == damaged.parent.name].iloc[0]
    assert row["outcome"] == "not_run"
    assert row["reason"].startswith("its record is damaged (not a complete JSON document")
    sweep._repr_html_()
    sweep.figure("steps")
    assert stamps(tmp_path) == before


def test_damaged_steps_are_an_error_and_not_a_table(tmp_path):
    folder = build_example_sweep(tmp_path)
    run = next(run.parent.name for run in folder.latest_records() if folder.steps(run.parent.name).exists())
    record = Record.read(folder.record(run))
    record.model_copy(update={"steps_sha256": "0" * 64}).write(folder.record(run))
    with pytest.raises(DamagedFile, match="do not match the checksum in its record"):
        accelsweep.open(folder.root).steps(run)


@pytest.mark.parametrize("place", [4, -60], ids=["a page", "the list of columns"])
def test_corrupt_steps_are_an_error_even_if_their_checksum_matches(tmp_path, place):
    folder = build_example_sweep(tmp_path)
    run = next(run.parent.name for run in folder.latest_records() if folder.steps(run.parent.name).exists())
    content = bytearray(folder.steps(run).read_bytes())
    content[place : place + 40] = b"\xff" * 40
    folder.steps(run).write_bytes(content)
    record = Record.read(folder.record(run))
    record.model_copy(update={"steps_sha256": sha256_file(folder.steps(run))}).write(folder.record(run))
    with pytest.raises(DamagedFile, match="it is not a table of steps"):
        accelsweep.open(folder.root).steps(run)


def test_an_archive_opens_like_its_folder_and_leaves_nothing_behind(folder, sweep, tmp_path, monkeypatch):
    archive = export_sweep(folder.home, "example", tmp_path / "sent.zip")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = accelsweep.open(str(archive))
    assert opened.findings == sweep.findings
    pd.testing.assert_frame_equal(opened.runs, sweep.runs)
    pd.testing.assert_frame_equal(opened.settings, sweep.settings)
    run = sweep.runs.loc[sweep.runs["outcome"] == "measured", "run"].iloc[0]
    pd.testing.assert_frame_equal(opened.steps(run), sweep.steps(run))
    assert opened._repr_html_() == sweep._repr_html_()
    del opened
    gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["sent.zip"]


def test_an_unusable_archive_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    archive = export_sweep(folder.home, "example", tmp_path / "sent.zip")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(InputError, match="two of these sweeps are called 'example': import one under another"):
        accelsweep.open([archive, folder.root])
    archive.write_bytes(archive.read_bytes()[:-50])
    with pytest.raises(InputError, match="is not a usable archive"):
        accelsweep.open(archive)
    assert [path.name for path in tmp_path.iterdir()] == ["sent.zip"]


def test_several_sweeps_are_merged_as_the_report_merges_them(folder, tmp_path):
    shutil.copytree(folder.root, tmp_path / "sweeps" / "example")
    shutil.copytree(folder.root, tmp_path / "sweeps" / "second")
    both = accelsweep.open([folder.root, tmp_path / "sweeps" / "second"])
    report_sweeps(tmp_path, ["example", "second"])
    assert both.findings == Findings.read(tmp_path / "reports" / "example+second" / "findings.json")
    assert both.name == "example+second"
    assert set(both.runs["sweep"]) == {"example", "second"}
    run = next(run for run in both.runs["run"].dropna() if run.startswith("second/"))
    assert len(both.steps(run)) > 0
    with pytest.raises(InputError, match="no run"):
        both.steps(run.removeprefix("second/"))


def test_a_sweep_here_is_opened_by_its_name(folder, monkeypatch):
    monkeypatch.chdir(folder.home)
    (folder.home / "example").mkdir(exist_ok=True)
    assert accelsweep.open("example").name == accelsweep.open("sweeps/example").name == "example"


@pytest.mark.parametrize(
    ("source", "message"),
    [("nothing", "the sweeps here are: example"), ("sweeps", "is not a sweep's folder"), ([], "nothing to open")],
)
def test_an_unknown_sweep_is_refused_with_the_known_ones(folder, monkeypatch, source, message):
    monkeypatch.chdir(folder.home)
    with pytest.raises(InputError, match=message):
        accelsweep.open(source)
