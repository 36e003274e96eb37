"""The program that computes the findings and writes the report, as Snakemake starts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from accelsweep.driver.finalize import main
from accelsweep.features.why_not_faster import closer_look
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder

pytestmark = pytest.mark.heavy


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the sweeps at which features looked closer."""
    sweeps: list[str] = []
    monkeypatch.setattr(closer_look, "profile_one_pair", lambda folder, _findings: bool(sweeps.append(folder.name)))
    return sweeps


def test_it_writes_the_table_the_findings_and_the_report(
    example_sweep: SweepFolder, looked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = example_sweep.records, example_sweep.findings, example_sweep.page
    assert main([str(example_sweep.root)]) == 0
    page, not_run = capsys.readouterr().out.splitlines()
    assert page == str(example_sweep.page)
    assert not_run.startswith("not_run: 1 run: its record is missing")
    written = [path.read_bytes() for path in files]
    assert Findings.read(example_sweep.findings).sweep == "example"
    assert looked == ["example"]
    assert main([str(example_sweep.root)]) == 0
    assert [
        path.read_bytes() for path in (example_sweep.records, example_sweep.findings, example_sweep.page)
    ] == written


def test_features_do_not_look_closer_at_a_sweep_that_failed(
    example_sweep: SweepFolder, looked: list[str], tmp_path: Path
) -> None:
    assert main([str(example_sweep.root), "--failed", str(tmp_path / "snakemake.log")]) == 0
    assert example_sweep.page.is_file()
    assert looked == []
