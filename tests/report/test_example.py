"""The examples in reports/examples can be rebuilt from their records, to the byte or to five digits."""

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
    """An example from a made-up sweep; tests must not change it."""

    def make(home):
        measured = build_example_sweep(home / "measured").home
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(example, "HERE", home)
            assert example.main(["keep", str(measured), "example", "old"]) == 0

    return once("kept-example", make) / "old"


@pytest.fixture
def kept(old, tmp_path):
    """That example and a copy of it, at the same folder depth."""
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
def test_the_link_from_an_example_to_the_method_works(home):
    for report in (home / "reports").iterdir():
        page, text = ((report / name).read_text() for name in ("index.html", "report.md"))
        (link,) = set(re.findall(r'[("]([./]+docs/method\.md)[)"]', page + text))
        assert (report / link).resolve() == EXAMPLES.parents[1] / "docs" / "method.md"


@pytest.mark.parametrize("home", FINISHED, ids=lambda home: home.name)
def test_an_example_is_small_enough_for_the_repository(home):
    assert sum(file.stat().st_size for file in home.rglob("*") if file.is_file()) < 5_000_000


def test_an_example_has_the_inputs_of_its_report_and_no_logs(kept):
    names = {path.name for path in (kept[0] / "sweeps" / "example").rglob("*") if path.is_file()}
    assert {"manifest.json", "record.json", "steps.parquet", "findings.json"} <= names
    assert not {"run.log", "records.parquet"} & names


def test_rebuilding_from_the_same_records_gives_the_same_report(example, kept):
    old, new = kept
    example.rebuild(new, "example")
    for exact in (True, False):
        assert list(example.differences(old, new, "example", exact=exact)) == []


def test_a_missing_record_and_a_missing_file_are_detected(example, kept):
    old, new = kept
    record = next((new / "sweeps" / "example" / "runs").glob("*/record.json"))
    record.unlink()
    example.rebuild(new, "example")
    for exact in (True, False):
        found = list(example.differences(old, new, "example", exact=exact))
        assert any("records_sha256" in line for line in found)
        assert any(line.startswith("settings.csv") for line in found)
    (new / "reports" / "example" / "report.md").unlink()
    assert "report.md is in one report only" in list(example.differences(old, new, "example", exact=False))


def test_on_other_systems_the_sixth_digit_may_differ_but_not_the_fifth(example, kept):
    old, new = kept
    table = new / "reports" / "example" / "speedup.csv"
    text = table.read_text()
    number = next(part for part in text.splitlines()[1].split(",") if part.startswith(("1.", "2.")))
    for change, noticed in ((1e-7, False), (1e-3, True)):
        table.write_text(text.replace(number, repr(float(number) * (1 + change))))
        assert bool(list(example.differences(old, new, "example", exact=False))) is noticed
        assert list(example.differences(old, new, "example", exact=True))
