"""Each doubt fires when it should, and seldom when it should not: the false-alarm rates are simulated here."""

from __future__ import annotations

import math
import random
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.run_results import RunRow, group, in_order
from accelsweep.analysis.sweep_doubts import drift, outlying_runs
from accelsweep.records.findings import Findings

CELLS = [{"batch_size": 2**power} for power in range(6)]
SWEEPS = 100


def _rows(simulated: ModuleType, generator: random.Random, blocks: int, **fields: Any) -> list[RunRow]:
    return [
        simulated.make_run(axes, block, 1000.0 * (index + 1) * math.exp(generator.gauss(0, 0.01)), **fields)
        for block in range(blocks)
        for index, axes in enumerate(CELLS)
    ]


def _analysed(simulated: ModuleType, rows: list[RunRow], blocks: int) -> Findings:
    return analyse(rows, simulated.make_manifest(CELLS, blocks))


def _codes(findings: Findings) -> list[str]:
    return [doubt.code for part in (findings, *findings.cells) for doubt in part.doubts]


@pytest.mark.exhaustive
@pytest.mark.parametrize("blocks", [3, 5, 10])
def test_a_clean_sweep_seldom_raises_any_doubt(simulated: ModuleType, blocks: int) -> None:
    """`few_repeats` is a fact about the plan; all others together may fire in at most 5 of 100 clean sweeps."""
    alarms = 0
    for seed in range(SWEEPS):
        findings = _analysed(simulated, _rows(simulated, random.Random(seed), blocks), blocks)
        alarms += any(code != "few_repeats" for code in _codes(findings))
    assert alarms <= 0.05 * SWEEPS


def test_an_outlier_is_flagged_by_name_and_never_dropped(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5)
    rows[0] = simulated.make_run(CELLS[0], 0, 800.0)
    finding = _analysed(simulated, rows, 5).cells[0]
    (doubt,) = (doubt for doubt in finding.doubts if doubt.code == "outlier")
    assert "repeat 0 " in doubt.message
    assert finding.rate is not None
    assert (finding.measured, finding.rate.count) == (5, 5)


def test_repeats_with_different_numbers_of_threads_are_doubted(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5, effective={"threads_per_rank": 12})
    assert "threads_differ" not in _codes(_analysed(simulated, rows, 5))
    rows[0] = simulated.make_run(CELLS[0], 0, 1000.0, effective={"threads_per_rank": 1})
    findings = _analysed(simulated, rows, 5)
    (doubt,) = (doubt for doubt in findings.cells[0].doubts if doubt.code == "threads_differ")
    assert "1 and 12 CPU threads per rank" in doubt.message
    assert _codes(findings).count("threads_differ") == 1


def test_an_outlier_does_not_make_other_runs_of_its_cell_outliers(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5)
    rows[0] = simulated.make_run(CELLS[0], 0, 800.0)
    groups = group(simulated.make_manifest(CELLS, 5), in_order(rows))
    assert outlying_runs(groups) == {f"{groups[0].cell}-r0"}


def test_cells_on_other_devices_are_judged_by_their_own_noise(simulated: ModuleType) -> None:
    """Two processes are 10 times noisier than one: none of their runs is strange among its own kind."""
    cells = [{"devices": devices, "batch_size": size} for devices in (1, 2) for size in (1, 2, 4, 8)]
    generator = random.Random(4)
    rows = [
        simulated.make_run(axes, block, 1000.0 * math.exp(generator.gauss(0, 0.002 if axes["devices"] == 1 else 0.02)))
        for block in range(5)
        for axes in cells
    ]
    assert outlying_runs(group(simulated.make_manifest(cells, 5), in_order(rows))) == frozenset()


def test_a_baseline_that_slows_down_from_block_to_block_is_noticed(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(2), 6)
    slowing = (math.exp(-0.03 * block + 0.002 * (-1) ** block) for block in range(6))
    rows[:: len(CELLS)] = [simulated.make_run(CELLS[0], block, 1000.0 * rate) for block, rate in enumerate(slowing)]
    (doubt,) = (doubt for doubt in _analysed(simulated, rows, 6).doubts if doubt.code == "baseline_drift")
    assert "-14" in doubt.message


def test_the_drift_alarm_is_false_once_in_a_hundred(simulated: ModuleType) -> None:
    generator, alarms, sweeps = random.Random(5), 0, 1000
    manifest = simulated.make_manifest(CELLS[:1], 6)
    rows = [simulated.make_run(CELLS[0], block, 1000.0) for block in range(6)]
    (cell,) = group(manifest, in_order(rows))
    for _ in range(sweeps):
        cell.log_rates.update({f"b{block}": generator.gauss(7, 0.01) for block in range(6)})
        alarms += drift(cell) is not None
    assert 0.003 * sweeps <= alarms <= 0.02 * sweeps


def test_a_repeat_that_failed_is_a_doubt_about_the_others(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(3), 3)
    rows[1] = simulated.make_run(CELLS[1], 0, None)
    finding = _analysed(simulated, rows, 3).cells[1]
    assert "2 of 3 planned repeats" in next(d.message for d in finding.doubts if d.code == "fewer_repeats")


def test_fewer_than_five_repeats_are_not_for_publishing(simulated: ModuleType) -> None:
    few = _analysed(simulated, _rows(simulated, random.Random(1), 3), 3)
    enough = _analysed(simulated, _rows(simulated, random.Random(1), 5), 5)
    assert ("few_repeats" in _codes(few), "few_repeats" in _codes(enough)) == (True, False)


def test_runs_on_two_hosts_are_a_doubt(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5)
    rows[0] = simulated.make_run(CELLS[0], 0, 1000.0, environment={"before": {"host": "node2"}})
    (doubt,) = (doubt for doubt in _analysed(simulated, rows, 5).doubts if doubt.code == "mixed_hosts")
    assert "node1, node2" in doubt.message


@pytest.mark.parametrize(("second", "host", "shared"), [(5, "node1", True), (10, "node1", False), (5, "node2", False)])
def test_runs_that_overlap_on_one_machine_are_a_doubt(
    simulated: ModuleType, second: int, host: str, shared: bool
) -> None:
    rows = _rows(simulated, random.Random(1), 3)
    times = {"started_at": "2026-01-05T20:00:00+00:00", "finished_at": "2026-01-05T20:00:10+00:00"}
    later = {"started_at": f"2026-01-05T20:00:{second:02d}+00:00", "finished_at": "2026-01-05T20:00:20+00:00"}
    rows[0] = simulated.make_run(CELLS[0], 0, 1000.0, **times)
    rows[1] = simulated.make_run(CELLS[1], 0, 2000.0, **later, environment={"before": {"host": host}})
    codes = [{doubt.code for doubt in cell.doubts} for cell in _analysed(simulated, rows, 3).cells]
    assert ["shared_timing" in code for code in codes[:3]] == [shared, shared, False]


def test_a_runs_own_doubt_reaches_its_cell_with_the_number_of_runs_that_have_it(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 3)
    doubt = {"code": "throttled", "message": "the GPU was too hot", "remedy": "cool it"}
    for block in (0, 2):
        rows[block * len(CELLS)] = simulated.make_run(CELLS[0], block, 1000.0 + block, doubts=[doubt])
    finding = _analysed(simulated, rows, 3).cells[0]
    (found,) = (one for one in finding.doubts if one.code == "throttled")
    assert (found.message, found.remedy) == ("2 of 3 runs: the GPU was too hot", "cool it")
    assert [bool(run.doubts) for run in finding.runs] == [True, False, True]
