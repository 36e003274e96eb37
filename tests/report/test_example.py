"""The finished examples in reports/examples come out of their records again, to the byte or to five digits."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

pytestmark = pytest.mark.heavy

EXAMPLES = Path(__file__).resolve().parents[2] / "reports" / "examples"
FINISHED = sorted(path.parent for path in EXAMPLES.glob("*/built.json"))


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("example", EXAMPLES / "example.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def old(example, once):
    """An example made of a sweep with invented numbers; tests must not change it."""

    def make(home):
        measured = build_example_sweep(home / "measured").home
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(example, "HERE", home)
            assert example.main(["keep", str(measured), "example", "old"]) == 0

    return once("kept-example", make) / "old"


@pytest.fixture
def kept(old, tmp_path):
    """That example and a copy of it, at the same depth."""
    shutil.copytree(old, tmp_path / "new")
    return old, tmp_path / "new"


@pytest.mark.real
@pytest.mark.parametrize("home", FINISHED, ids=lambda home: home.name)
def test_the_report_of_a_finished_example_is_reproduced_from_its_records(example, home, tmp_path):
    place = tmp_path / "reports" / "examples" / home.name
    for sweep in (home / "sweeps").iterdir():
        shutil.copytree(sweep, place / "sweeps" / sweep.name, ignore=shutil.ignore_patterns("findings.json"))
        example.rebuild(place, sweep.name)
        exact = json.loads((home / "built.json").read_text()) == example.built_with()
        found = list(example.differences(home, place, sweep.name, exact=exact))
        assert found == [], "if the change is meant, run `make example-report`"


@pytest.mark.parametrize("home", FINISHED, ids=lambda home: home.name)
def test_the_way_from_an_example_to_the_method_leads_there(home):
    for report in (home / "reports").iterdir():
        page, text = ((report / name).read_text() for name in ("index.html", "report.md"))
        (way,) = set(re.findall(r'[("]([./]+docs/method\.md)[)"]', page + text))
        assert (report / way).resolve() == EXAMPLES.parents[1] / "docs" / "method.md"


@pytest.mark.parametrize("home", FINISHED, ids=lambda home: home.name)
def test_an_example_is_small_enough_to_keep(home):
    assert sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) < 4_000_000


def test_an_example_keeps_what_the_report_is_made_from_and_no_logs(kept):
    names = {path.name for path in (kept[0] / "sweeps" / "example").rglob("*") if path.is_file()}
    assert {"manifest.json", "record.json", "steps.parquet", "findings.json"} <= names
    assert not {"run.log", "records.parquet"} & names


def test_what_is_rebuilt_from_the_same_records_does_not_differ(example, kept):
    old, new = kept
    example.rebuild(new, "example")
    for exact in (True, False):
        assert list(example.differences(old, new, "example", exact=exact)) == []


def test_a_changed_record_a_changed_number_and_a_missing_file_are_noticed(example, kept):
    old, new = kept
    record = next((new / "sweeps" / "example" / "runs").glob("*/record.json"))
    record.unlink()
    example.rebuild(new, "example")
    for exact in (True, False):
        found = list(example.differences(old, new, "example", exact=exact))
        assert any("records_sha256" in line for line in found)
        assert any(line.startswith("cells.csv") for line in found)
    (new / "reports" / "example" / "report.md").unlink()
    assert "report.md is in one report only" in list(example.differences(old, new, "example", exact=False))


def test_a_sixth_digit_may_differ_elsewhere_and_a_fifth_may_not(example, kept):
    old, new = kept
    table = new / "reports" / "example" / "speedup.csv"
    text = table.read_text()
    number = next(part for part in text.splitlines()[1].split(",") if part.startswith(("1.", "2.")))
    for change, noticed in ((1e-7, False), (1e-3, True)):
        table.write_text(text.replace(number, repr(float(number) * (1 + change))))
        assert bool(list(example.differences(old, new, "example", exact=False))) is noticed
        assert list(example.differences(old, new, "example", exact=True))
