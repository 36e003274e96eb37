"""A measured sweep goes to another folder as one file, and goes on there."""

import pytest

from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.real


@pytest.mark.long  # features/archives/test_export_import.py packs and opens; only here a brought sweep goes on
def test_a_measured_sweep_is_brought_elsewhere_and_stands_there(continued, home):
    exported = continued.accelsweep("export", "tiny", "--to", str(home.path / "tiny.zip"))
    assert exported.returncode == 0, exported.stdout
    home.path.joinpath("other").mkdir()
    other = type(home)(home.path / "other", **home.environment)
    brought = other.accelsweep("import", "../tiny.zip")
    assert brought.returncode == 0, brought.stdout
    assert "byte for byte" in brought.stdout
    here, there = SweepFolder(continued.path, "tiny"), SweepFolder(other.path, "tiny")
    assert there.findings.read_bytes() == here.findings.read_bytes()
    for path in there.report.iterdir():
        assert path.read_bytes() == (here.report / path.name).read_bytes(), path.name
    records = other.records("tiny")
    assert len(records) == 4
    again = other.accelsweep("import", "../tiny.zip")
    assert again.returncode == 2
    assert "already exists" in again.stdout
    other.experiment("tiny", (continued.path / "conf" / "experiment" / "tiny.yaml").read_text())
    ended = other.accelsweep("run", "experiment=tiny")
    assert ended.returncode == 0, ended.stdout
    assert other.records("tiny") == records, "the same command measures nothing again"
