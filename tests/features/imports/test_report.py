"""`accelsweep import` writes one file of rows or nothing, and a merged report lists them without changing a number."""

from pathlib import Path

import pytest
from example_sweep import build_example_sweep
from simulated_sweep import make_run

from accelsweep.driver.finalize import report_sweeps
from accelsweep.errors import InputError
from accelsweep.features.imports.model import ExternalResults, ExternalRow, ImportedRows
from accelsweep.features.imports.report import import_rows, matching_rows
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MergedPlace

NAME = "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
ROWS = (
    "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
    "resnet50,1218.0,420.1,512,224,25.56\n"
    "resnet18,2500.0,200.1,512,224,11.69\n"
    "resnet18,1500.0,200.1,256,288,11.69\n"
)


@pytest.fixture
def published_file(tmp_path: Path) -> Path:
    """A timm file in the working directory."""
    path = tmp_path / NAME
    path.write_text(ROWS)
    return path


def test_importing_twice_changes_nothing_and_says_what_was_imported(tmp_path, published_file, capsys):
    import_rows(tmp_path, published_file, "timm", None, None)
    assert "3 rows of 2 models from timm, on rtx3090" in "".join(capsys.readouterr())
    (path,) = (tmp_path / "external").iterdir()
    assert path.name == f"timm-{published_file.stem}.json"
    before = path.read_bytes()
    import_rows(tmp_path, published_file, "timm", None, None)
    assert path.read_bytes() == before


def test_existing_rows_are_never_replaced_by_different_ones(tmp_path, published_file):
    import_rows(tmp_path, published_file, "timm", None, "rows")
    before = (tmp_path / "external" / "rows.json").read_bytes()
    published_file.write_text(ROWS.replace("1218", "1219"))
    with pytest.raises(InputError, match="choose another name with --name"):
        import_rows(tmp_path, published_file, "timm", None, "rows")
    assert (tmp_path / "external" / "rows.json").read_bytes() == before


@pytest.mark.parametrize(("text", "name"), [("damaged\n", None), (ROWS, "../rows")])
def test_a_damaged_file_or_an_unsafe_name_writes_nothing(tmp_path, published_file, text, name):
    published_file.write_text(text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError):
        import_rows(tmp_path, published_file, "timm", None, name)
    assert sorted(tmp_path.rglob("*")) == before


def results(*rows: tuple[str, str]) -> ExternalResults:
    """Return an imported file of rows with these models and tasks."""
    external = tuple(
        ExternalRow(model=model, task=task, value=100.0 + at, unit="1/s", device="RTX 3090")
        for at, (model, task) in enumerate(rows)
    )
    return ExternalResults(source="timm", file="benchmark.csv", sha256="0" * 64, rows=external)


def test_rows_match_runs_of_the_same_model_and_task():
    run = make_run(
        {"batch_size": 32}, 0, 10.0, config={"model": {"_target_": "accelsweep.workloads.image_models.ResNet50"}}
    )
    imported = results(("resnet50", "training"), ("resnet50", "inference"), ("resnet50d", "training"))
    (match,) = matching_rows([run], [imported])
    assert (match.source, match.row.model, match.row.task) == ("timm", "resnet50", "training")
    assert matching_rows([run], []) == ()


@pytest.mark.heavy
def test_imported_rows_have_their_own_table_in_a_merged_report_and_change_no_number(tmp_path):
    for name in ("one", "two"):
        build_example_sweep(tmp_path, name)
    report_sweeps(tmp_path, ["one", "two"])
    path = MergedPlace(tmp_path, ("one", "two")).findings
    before = Findings.read(path)
    row = ExternalRow(model="small_cnn", task="training", value=1234.5, unit="1/s", device="RTX 3090", devices=1)
    (tmp_path / "external").mkdir()
    ExternalResults(source="timm", file="theirs.csv", sha256="0" * 64, rows=(row,)).write(
        tmp_path / "external" / "timm-theirs.json"
    )
    text = report_sweeps(tmp_path, ["one", "two"]).with_name("report.md").read_text("utf-8")
    assert "## Measured by others" in text
    assert "timm theirs.csv" in text.replace("\\", "")
    assert "1,234.5 samples/s" in text
    after = Findings.read(path)
    assert [sourced.row for sourced in after.section(ImportedRows).rows] == [row]
    others = {name: section for name, section in after.sections.items() if name != "imports"}
    assert after.model_copy(update={"sections": others}) == before
    assert "Measured by others" not in report_sweeps(tmp_path, ["one"]).read_text("utf-8")
