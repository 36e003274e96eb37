"""`accelsweep import FILE --from SOURCE` writes one file of rows, or nothing."""

from pathlib import Path

import pytest

from accelsweep.errors import InputError
from accelsweep.features.imports.report import import_rows

NAME = "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
ROWS = (
    "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
    "resnet50,1218.0,420.1,512,224,25.56\n"
    "resnet18,2500.0,200.1,512,224,11.69\n"
    "resnet18,1500.0,200.1,256,288,11.69\n"
)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A published file in the user's folder."""
    path = tmp_path / NAME
    path.write_text(ROWS)
    return path


def test_rows_are_written_once_and_told(tmp_path, theirs, capsys):
    import_rows(tmp_path, theirs, "timm", None, None)
    said = capsys.readouterr()
    assert "3 rows of 2 models by timm, on rtx3090" in said.out + said.err
    (place,) = (tmp_path / "external").iterdir()
    assert place.name == f"timm-{theirs.stem}.json"
    before = place.read_bytes()
    import_rows(tmp_path, theirs, "timm", None, None)
    assert place.read_bytes() == before


def test_other_rows_of_the_same_name_are_never_replaced(tmp_path, theirs):
    import_rows(tmp_path, theirs, "timm", None, "rows")
    before = (tmp_path / "external" / "rows.json").read_bytes()
    theirs.write_text(ROWS.replace("1218", "1219"))
    with pytest.raises(InputError, match="take another name with --name"):
        import_rows(tmp_path, theirs, "timm", None, "rows")
    assert (tmp_path / "external" / "rows.json").read_bytes() == before


@pytest.mark.parametrize(("text", "name"), [("damaged\n", None), (ROWS, "../rows")])
def test_a_damaged_file_or_a_name_that_leads_elsewhere_changes_nothing(tmp_path, theirs, text, name):
    theirs.write_text(text)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError):
        import_rows(tmp_path, theirs, "timm", None, name)
    assert sorted(tmp_path.rglob("*")) == before
