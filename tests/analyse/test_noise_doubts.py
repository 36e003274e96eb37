"""Doubts about noise fire on what breaks the interval, and in at most one of a hundred sweeps of equal normal noise."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.baseline_comparison import pair_of
from accelsweep.analysis.run_results import CellRuns, group, in_order
from accelsweep.analysis.sweep_doubts import noisy_baseline, two_cluster_chance, two_levels, uneven_noise
from accelsweep.records.findings import Findings

SWEEPS = 1000
MOST_FALSE = 0.016
"""One in a hundred, and what 1000 sweeps leave to chance (two standard errors)."""

CELLS = [{"batch_size": 2**power} for power in range(8)]
BASE = CELLS[0]


class Rows:
    """Eight cells in some blocks, whose log rates are replaced without building a table anew."""

    def __init__(self, simulated: ModuleType, cells: list[dict[str, Any]], blocks: int) -> None:
        rows = [simulated.make_run(axes, block, 1000.0) for block in range(blocks) for axes in cells]
        self.baseline = simulated.name_of(cells[0])
        self.shape = (len(cells), blocks)
        self.groups: list[CellRuns] = group(simulated.make_manifest(cells, blocks), in_order(rows))

    def hold(self, logs: np.ndarray) -> list[CellRuns]:
        """Put (cells, blocks) log rates into the rows, and return them."""
        for one, values in zip(self.groups, logs, strict=True):
            one.log_rates.update({f"b{block}": float(value) for block, value in enumerate(values)})
        return self.groups


def _uneven(groups: list[CellRuns]) -> list[bool]:
    pairs = [pair_of(one, groups[0], one.log_rates, groups[0].log_rates) for one in groups[1:]]
    return [doubt is not None for doubt in uneven_noise(pairs, len(pairs))]


@pytest.mark.parametrize("blocks", [3, 5])
def test_equal_normal_noise_is_seldom_called_uneven_or_the_baseline_noisy(simulated: ModuleType, blocks: int) -> None:
    rows, generator, uneven, noisy = Rows(simulated, CELLS, blocks), np.random.default_rng(1), 0, 0
    for _ in range(SWEEPS):
        groups = rows.hold(generator.normal(0.0, 0.01, size=rows.shape) + generator.normal(0.0, 0.1, size=blocks))
        uneven += any(_uneven(groups))
        noisy += bool(noisy_baseline(groups, rows.baseline))
    assert uneven <= MOST_FALSE * SWEEPS
    assert noisy <= MOST_FALSE * SWEEPS


@pytest.mark.exhaustive
@pytest.mark.parametrize("blocks", [4, 5, 10])
@pytest.mark.parametrize("shape", ["normal", "t3", "uneven"])
def test_one_level_is_seldom_called_two(simulated: ModuleType, blocks: int, shape: str) -> None:
    """Heavy tails and rows of different noise are no levels either."""
    rows, generator, alarms = Rows(simulated, CELLS, blocks), np.random.default_rng(2), 0
    for _ in range(SWEEPS):
        noise = generator.standard_t(3, rows.shape) if shape == "t3" else generator.normal(size=rows.shape)
        if shape == "uneven":
            noise = noise * 10.0 ** generator.normal(0.0, 0.5, size=(len(CELLS), 1))
        shocks = generator.normal(0.0, 0.1, size=blocks)
        alarms += any(doubt is not None for doubt in two_levels(rows.hold(0.01 * noise + shocks)))
    assert alarms <= MOST_FALSE * SWEEPS


@pytest.mark.parametrize(("blocks", "cells", "least"), [(3, 4, 0.5), (3, 8, 0.85), (5, 3, 0.8), (5, 8, 0.97)])
def test_a_baseline_with_ten_times_the_noise_is_found(
    simulated: ModuleType, blocks: int, cells: int, least: float
) -> None:
    rows, generator, found = Rows(simulated, CELLS[:cells], blocks), np.random.default_rng(3), 0
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape)
        noise[0] *= 10.0
        found += len(noisy_baseline(rows.hold(noise), rows.baseline))
    assert found >= least * 200


@pytest.mark.parametrize(("blocks", "least"), [(3, 0.55), (5, 0.9)])
def test_a_row_with_ten_times_the_noise_is_found_and_no_other(simulated: ModuleType, blocks: int, least: float) -> None:
    rows, generator = Rows(simulated, CELLS, blocks), np.random.default_rng(4)
    found = np.zeros(len(CELLS) - 1)
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape)
        noise[1] *= 10.0
        found += _uneven(rows.hold(noise))
    assert found[0] >= least * 200
    assert found[1:].max() <= 2


def test_two_levels_fifty_sds_apart_are_found_in_8_blocks_and_only_where_they_are(simulated: ModuleType) -> None:
    rows, generator = Rows(simulated, CELLS, 8), np.random.default_rng(5)
    found = np.zeros(len(CELLS))
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape) + generator.normal(0.0, 0.1, size=8)
        noise[1:3] += generator.choice((0.0, 0.5), size=(2, 8))
        found += [doubt is not None for doubt in two_levels(rows.hold(noise))]
    assert found[1:3].min() >= 0.85 * 200
    assert found[[0, *range(3, 8)]].max() <= 4


def test_the_chance_of_a_split_is_students_t_over_the_partitions() -> None:
    """Of four values two and two: three partitions, each with the two-sample t-test's chance."""
    chance = float(stats.ttest_ind([1.0, 1.1], [3.0, 3.2]).pvalue)
    assert two_cluster_chance([1.0, 1.1, 3.0, 3.2]) == pytest.approx(3 * chance)


def test_one_far_run_is_an_outlier_and_no_level() -> None:
    assert two_cluster_chance([1.0, 1.01, 1.02, 1.03, 9.0]) > 0.5


def _analysed(simulated: ModuleType, logs: np.ndarray) -> Findings:
    cells, blocks = logs.shape
    rows = [
        simulated.make_run(CELLS[cell], block, 1000.0 * math.exp(logs[cell, block]))
        for cell in range(cells)
        for block in range(blocks)
    ]
    return analyse(rows, simulated.make_manifest(CELLS[:cells], blocks))


def test_the_doubts_stand_where_the_noise_is_and_say_how_much_it_is(simulated: ModuleType) -> None:
    logs = np.random.default_rng(6).normal(0.0, 0.001, size=(8, 8))
    logs[3] += np.where(np.arange(8) % 2, 0.1, 0.0)
    findings = _analysed(simulated, logs)
    codes = {cell.label: {doubt.code for doubt in cell.doubts} for cell in findings.cells}
    assert [label for label, found in codes.items() if "two_levels" in found] == [findings.cells[3].label]
    assert [label for label, found in codes.items() if "uneven_noise" in found] == [findings.cells[3].label]
    (levels,) = (doubt for doubt in findings.cells[3].doubts if doubt.code == "two_levels")
    assert "10." in levels.message
    assert "4 blocks at the lower, 4 at the upper" in levels.message
    logs[0] = np.random.default_rng(7).normal(0.0, 0.05, size=8)
    (noisy,) = (doubt for doubt in _analysed(simulated, logs[[0, 1, 2, 4, 5]]).doubts if doubt.code == "noisy_baseline")
    assert "add blocks with a higher block.baseline_runs" in noisy.remedy


def test_a_cell_that_lacks_a_block_does_not_hide_a_noisy_baseline(simulated: ModuleType) -> None:
    rows, generator = Rows(simulated, CELLS, 5), np.random.default_rng(8)
    noise = generator.normal(0.0, 0.01, size=rows.shape)
    noise[0] *= 30.0
    groups = rows.hold(noise)
    del groups[4].log_rates["b1"]
    assert len(noisy_baseline(groups, rows.baseline)) == 1
