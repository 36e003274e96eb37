"""What MLflow says of a cell as a whole: numbers only where one number can stand for all of its repeats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.collect import collect
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record
from accelsweep.tracking.publisher import publish

pytestmark = pytest.mark.real

ReadStore = Callable[[SweepFolder, str], dict[str, dict[str, Any]]]

OF_THE_CELL = {"runs_planned": 3.0, "runs_finished": 3.0, "runs_measured": 3.0}


def move_a_repeat(sweep: SweepFolder, cell: str, host: str) -> tuple[CellFinding, ...]:
    """Let the last repeat of a cell have run on another kind of hardware; analyse, return the cell's findings."""
    path = sweep.record(f"{cell}-r2")
    record = Record.read(path)
    fingerprint = record.fingerprint.model_copy(update={"hardware": {"host": host}})
    record.model_copy(update={"fingerprint": fingerprint}).write(path)
    findings = analyse(collect(sweep), Manifest.read(sweep.manifest))
    findings.write(sweep.findings)
    return tuple(one for one in findings.cells if one.cell == cell)


def latest(entry: dict[str, Any]) -> dict[str, float]:
    return {name: points[-1][1] for name, points in entry["metrics"].items() if not math.isnan(points[-1][1])}


def test_a_cell_run_on_two_kinds_of_hardware_has_no_numbers_of_one_kind(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    manifest = Manifest.read(sweep.manifest)
    key = f"cell:{manifest.baseline}"
    analyse(collect(sweep), manifest).write(sweep.findings)
    publish(sweep, uri)
    assert latest(read_store(sweep, uri)[key]).items() > OF_THE_CELL.items()
    kinds = move_a_repeat(sweep, str(manifest.baseline), "Another CPU")
    assert [one.measured for one in kinds] == [1, 2]
    publish(sweep, uri)
    entry = read_store(sweep, uri)[key]
    assert latest(entry) == OF_THE_CELL
    assert entry["tags"]["verdict"] == "run on 2 kinds of hardware"
    assert not {"verdict_reason", "quality_verdict"} & entry["tags"].keys()
    assert entry["tags"]["hardware"] == "Another CPU; Intel Xeon (example)"
    assert publish(sweep, uri).written == 0


def test_the_description_of_such_a_cell_lists_each_kind_with_its_rate_and_verdict(
    copied: tuple[SweepFolder, str], read_store: ReadStore
) -> None:
    sweep, uri = copied
    baseline = str(Manifest.read(sweep.manifest).baseline)
    move_a_repeat(sweep, baseline, "Another CPU")
    publish(sweep, uri)
    note = read_store(sweep, uri)[f"cell:{baseline}"]["tags"]["mlflow.note.content"].splitlines()
    found = [one for one in Findings.read(sweep.findings).cells if one.cell == baseline]
    assert note[0] == "This setting was run on 2 kinds of hardware; see the report for a comparison."
    for line, one in zip(note[2:4], found, strict=True):
        assert line.startswith(f"* {one.hardware}: ")
        assert line.endswith(f"; **{one.verdict}**: {one.verdict_reason}")
    assert "1/s (no interval: " in note[2], "it was measured once there"
    assert "1/s [" in note[3]
