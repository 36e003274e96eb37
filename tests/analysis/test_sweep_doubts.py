"""Each doubt fires when it should, and rarely otherwise: the false-alarm rates are simulated here."""

from __future__ import annotations

import math
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.baseline_comparison import make_pair
from accelsweep.analysis.run_results import RunRow, SettingRuns, group_runs, sorted_runs
from accelsweep.analysis.sweep_doubts import (
    drift,
    noisy_baseline,
    outlying_runs,
    two_cluster_p_value,
    two_levels,
    uneven_noise,
)
from accelsweep.records.findings import Findings

SETTINGS = [{"batch_size": 2**power} for power in range(6)]
SWEEPS = 100


def _rows(simulated: ModuleType, generator: random.Random, blocks: int, **fields: Any) -> list[RunRow]:
    return [
        simulated.make_run(axes, block, 1000.0 * (index + 1) * math.exp(generator.gauss(0, 0.01)), **fields)
        for block in range(blocks)
        for index, axes in enumerate(SETTINGS)
    ]


def _analysed(simulated: ModuleType, rows: list[RunRow], blocks: int) -> Findings:
    return analyse(rows, simulated.make_manifest(SETTINGS, blocks))


def _codes(findings: Findings) -> list[str]:
    return [doubt.code for part in (findings, *findings.settings) for doubt in part.doubts]


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
    rows[0] = simulated.make_run(SETTINGS[0], 0, 800.0)
    finding = _analysed(simulated, rows, 5).settings[0]
    (doubt,) = (doubt for doubt in finding.doubts if doubt.code == "outlier")
    assert "repeat 0 " in doubt.message
    assert finding.rate is not None
    assert (finding.measured, finding.rate.count) == (5, 5)


def test_repeats_with_different_numbers_of_threads_are_doubted(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5, effective={"threads_per_rank": 12})
    assert "threads_differ" not in _codes(_analysed(simulated, rows, 5))
    rows[0] = simulated.make_run(SETTINGS[0], 0, 1000.0, effective={"threads_per_rank": 1})
    findings = _analysed(simulated, rows, 5)
    (doubt,) = (doubt for doubt in findings.settings[0].doubts if doubt.code == "threads_differ")
    assert "1 and 12 CPU threads per rank" in doubt.message
    assert _codes(findings).count("threads_differ") == 1


def test_a_precision_compared_with_a_baseline_without_tf32_is_doubted_on_devices_that_have_it(
    simulated: ModuleType,
) -> None:
    def codes(device: str, matmul_precision: str, precisions: tuple[str, ...]) -> list[str]:
        settings = [{"precision": name} for name in precisions]
        rows = [
            simulated.make_run(
                axes,
                block,
                1000.0,
                effective={**axes, "device_names": (device,), "matmul_precision": matmul_precision},
            )
            for axes in settings
            for block in range(5)
        ]
        return _codes(analyse(rows, simulated.make_manifest(settings, 5)))

    compared = ("32-true", "bf16-mixed")
    assert "float32_baseline" in codes("NVIDIA A100-SXM4-40GB", "highest", compared)
    assert "float32_baseline" not in codes("NVIDIA A100-SXM4-40GB", "high", compared)
    assert "float32_baseline" not in codes("Tesla V100-SXM2-32GB", "highest", compared)
    assert "float32_baseline" not in codes("NVIDIA A100-SXM4-40GB", "highest", ("32-true",))
    assert "float32_baseline" not in codes("NVIDIA A100-SXM4-40GB", "highest", ("bf16-mixed", "16-mixed"))


def test_an_outlier_does_not_make_other_runs_of_its_setting_outliers(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5)
    rows[0] = simulated.make_run(SETTINGS[0], 0, 800.0)
    groups = group_runs(simulated.make_manifest(SETTINGS, 5), sorted_runs(rows))
    assert outlying_runs(groups) == {f"{groups[0].setting}-r0"}


def test_settings_on_other_devices_are_judged_by_their_own_noise(simulated: ModuleType) -> None:
    """Two processes are 10 times noisier than one: none of their runs is strange among its own kind."""
    settings = [{"devices": devices, "batch_size": size} for devices in (1, 2) for size in (1, 2, 4, 8)]
    generator = random.Random(4)
    rows = [
        simulated.make_run(axes, block, 1000.0 * math.exp(generator.gauss(0, 0.002 if axes["devices"] == 1 else 0.02)))
        for block in range(5)
        for axes in settings
    ]
    assert outlying_runs(group_runs(simulated.make_manifest(settings, 5), sorted_runs(rows))) == frozenset()


def test_a_baseline_that_slows_down_from_block_to_block_is_noticed(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(2), 6)
    slowing = (math.exp(-0.03 * block + 0.002 * (-1) ** block) for block in range(6))
    rows[:: len(SETTINGS)] = [
        simulated.make_run(SETTINGS[0], block, 1000.0 * rate) for block, rate in enumerate(slowing)
    ]
    (doubt,) = (doubt for doubt in _analysed(simulated, rows, 6).doubts if doubt.code == "baseline_drift")
    assert "-14" in doubt.message


def test_the_drift_alarm_is_false_once_in_a_hundred(simulated: ModuleType) -> None:
    generator, alarms, sweeps = random.Random(5), 0, 1000
    manifest = simulated.make_manifest(SETTINGS[:1], 6)
    rows = [simulated.make_run(SETTINGS[0], block, 1000.0) for block in range(6)]
    (setting,) = group_runs(manifest, sorted_runs(rows))
    for _ in range(sweeps):
        setting.log_rates.update({f"b{block}": generator.gauss(7, 0.01) for block in range(6)})
        alarms += drift(setting) is not None
    assert 0.003 * sweeps <= alarms <= 0.02 * sweeps


def test_a_repeat_that_failed_is_a_doubt_about_the_others(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(3), 3)
    rows[1] = simulated.make_run(SETTINGS[1], 0, None)
    finding = _analysed(simulated, rows, 3).settings[1]
    assert "2 of 3 planned repeats" in next(d.message for d in finding.doubts if d.code == "missing_repeats")


def test_fewer_than_five_repeats_are_not_for_publishing(simulated: ModuleType) -> None:
    few = _analysed(simulated, _rows(simulated, random.Random(1), 3), 3)
    enough = _analysed(simulated, _rows(simulated, random.Random(1), 5), 5)
    assert ("few_repeats" in _codes(few), "few_repeats" in _codes(enough)) == (True, False)


def test_runs_on_two_hosts_are_a_doubt(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 5)
    rows[0] = simulated.make_run(SETTINGS[0], 0, 1000.0, environment={"before": {"host": "node2"}})
    (doubt,) = (doubt for doubt in _analysed(simulated, rows, 5).doubts if doubt.code == "mixed_hosts")
    assert "node1, node2" in doubt.message


@pytest.mark.parametrize(("second", "host", "shared"), [(5, "node1", True), (10, "node1", False), (5, "node2", False)])
def test_runs_that_overlap_on_one_machine_are_a_doubt(
    simulated: ModuleType, second: int, host: str, shared: bool
) -> None:
    rows = _rows(simulated, random.Random(1), 3)
    times = {"started_at": "2026-01-05T20:00:00+00:00", "finished_at": "2026-01-05T20:00:10+00:00"}
    later = {"started_at": f"2026-01-05T20:00:{second:02d}+00:00", "finished_at": "2026-01-05T20:00:20+00:00"}
    rows[0] = simulated.make_run(SETTINGS[0], 0, 1000.0, **times)
    rows[1] = simulated.make_run(SETTINGS[1], 0, 2000.0, **later, environment={"before": {"host": host}})
    codes = [{doubt.code for doubt in setting.doubts} for setting in _analysed(simulated, rows, 3).settings]
    assert ["shared_timing" in code for code in codes[:3]] == [shared, shared, False]


def test_a_runs_own_doubt_reaches_its_setting_with_the_number_of_runs_that_have_it(simulated: ModuleType) -> None:
    rows = _rows(simulated, random.Random(1), 3)
    doubt = {"code": "throttled", "message": "the GPU was too hot", "remedy": "cool it"}
    for block in (0, 2):
        rows[block * len(SETTINGS)] = simulated.make_run(SETTINGS[0], block, 1000.0 + block, doubts=[doubt])
    finding = _analysed(simulated, rows, 3).settings[0]
    (found,) = (one for one in finding.doubts if one.code == "throttled")
    assert (found.message, found.remedy) == ("2 of 3 runs: the GPU was too hot", "cool it")
    assert [bool(run.doubts) for run in finding.runs] == [True, False, True]


NOISE_SWEEPS = 1000
MOST_FALSE = 0.016
"""One in a hundred, and what 1000 sweeps leave to chance (two standard errors)."""

NOISY_SETTINGS = [{"batch_size": 2**power} for power in range(8)]
BASE = NOISY_SETTINGS[0]


class Rows:
    """Eight settings in some blocks, whose log rates are replaced without building a table anew."""

    def __init__(self, simulated: ModuleType, settings: list[dict[str, Any]], blocks: int) -> None:
        rows = [simulated.make_run(axes, block, 1000.0) for block in range(blocks) for axes in settings]
        self.baseline = simulated.name_of(settings[0])
        self.shape = (len(settings), blocks)
        self.groups: list[SettingRuns] = group_runs(simulated.make_manifest(settings, blocks), sorted_runs(rows))

    def hold(self, logs: np.ndarray) -> list[SettingRuns]:
        """Put (settings, blocks) log rates into the rows, and return them."""
        for one, values in zip(self.groups, logs, strict=True):
            one.log_rates.update({f"b{block}": float(value) for block, value in enumerate(values)})
        return self.groups


def _uneven(groups: list[SettingRuns]) -> list[bool]:
    pairs = [make_pair(one, groups[0], one.log_rates, groups[0].log_rates) for one in groups[1:]]
    return [doubt is not None for doubt in uneven_noise(pairs, len(pairs))]


@pytest.mark.parametrize("blocks", [3, 5])
def test_equal_normal_noise_is_seldom_called_uneven_or_the_baseline_noisy(simulated: ModuleType, blocks: int) -> None:
    rows, generator, uneven, noisy = Rows(simulated, NOISY_SETTINGS, blocks), np.random.default_rng(1), 0, 0
    for _ in range(NOISE_SWEEPS):
        groups = rows.hold(generator.normal(0.0, 0.01, size=rows.shape) + generator.normal(0.0, 0.1, size=blocks))
        uneven += any(_uneven(groups))
        noisy += bool(noisy_baseline(groups, rows.baseline))
    assert uneven <= MOST_FALSE * NOISE_SWEEPS
    assert noisy <= MOST_FALSE * NOISE_SWEEPS


@pytest.mark.exhaustive
@pytest.mark.parametrize("blocks", [4, 5, 10])
@pytest.mark.parametrize("shape", ["normal", "t3", "uneven"])
def test_one_level_is_seldom_called_two(simulated: ModuleType, blocks: int, shape: str) -> None:
    """Heavy tails and rows of different noise are no levels either."""
    rows, generator, alarms = Rows(simulated, NOISY_SETTINGS, blocks), np.random.default_rng(2), 0
    for _ in range(NOISE_SWEEPS):
        noise = generator.standard_t(3, rows.shape) if shape == "t3" else generator.normal(size=rows.shape)
        if shape == "uneven":
            noise = noise * 10.0 ** generator.normal(0.0, 0.5, size=(len(NOISY_SETTINGS), 1))
        shocks = generator.normal(0.0, 0.1, size=blocks)
        alarms += any(doubt is not None for doubt in two_levels(rows.hold(0.01 * noise + shocks)))
    assert alarms <= MOST_FALSE * NOISE_SWEEPS


@pytest.mark.parametrize(("blocks", "settings", "least"), [(3, 4, 0.5), (3, 8, 0.85), (5, 3, 0.8), (5, 8, 0.97)])
def test_a_baseline_with_ten_times_the_noise_is_found(
    simulated: ModuleType, blocks: int, settings: int, least: float
) -> None:
    rows, generator, found = Rows(simulated, NOISY_SETTINGS[:settings], blocks), np.random.default_rng(3), 0
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape)
        noise[0] *= 10.0
        found += len(noisy_baseline(rows.hold(noise), rows.baseline))
    assert found >= least * 200


@pytest.mark.parametrize(("blocks", "least"), [(3, 0.55), (5, 0.9)])
def test_a_row_with_ten_times_the_noise_is_found_and_no_other(simulated: ModuleType, blocks: int, least: float) -> None:
    rows, generator = Rows(simulated, NOISY_SETTINGS, blocks), np.random.default_rng(4)
    found = np.zeros(len(NOISY_SETTINGS) - 1)
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape)
        noise[1] *= 10.0
        found += _uneven(rows.hold(noise))
    assert found[0] >= least * 200
    assert found[1:].max() <= 2


def test_two_levels_fifty_sds_apart_are_found_in_8_blocks_and_only_where_they_are(simulated: ModuleType) -> None:
    rows, generator = Rows(simulated, NOISY_SETTINGS, 8), np.random.default_rng(5)
    found = np.zeros(len(NOISY_SETTINGS))
    for _ in range(200):
        noise = generator.normal(0.0, 0.01, size=rows.shape) + generator.normal(0.0, 0.1, size=8)
        noise[1:3] += generator.choice((0.0, 0.5), size=(2, 8))
        found += [doubt is not None for doubt in two_levels(rows.hold(noise))]
    assert found[1:3].min() >= 0.85 * 200
    assert found[[0, *range(3, 8)]].max() <= 4


def test_the_chance_of_a_split_is_students_t_over_the_partitions() -> None:
    """Of four values two and two: three partitions, each with the two-sample t-test's chance."""
    chance = float(stats.ttest_ind([1.0, 1.1], [3.0, 3.2]).pvalue)
    assert two_cluster_p_value([1.0, 1.1, 3.0, 3.2]) == pytest.approx(3 * chance)


def test_one_far_run_is_an_outlier_and_no_level() -> None:
    assert two_cluster_p_value([1.0, 1.01, 1.02, 1.03, 9.0]) > 0.5


def _analysed_logs(simulated: ModuleType, logs: np.ndarray) -> Findings:
    settings, blocks = logs.shape
    rows = [
        simulated.make_run(NOISY_SETTINGS[setting], block, 1000.0 * math.exp(logs[setting, block]))
        for setting in range(settings)
        for block in range(blocks)
    ]
    return analyse(rows, simulated.make_manifest(NOISY_SETTINGS[:settings], blocks))


def test_the_doubts_stand_where_the_noise_is_and_say_how_much_it_is(simulated: ModuleType) -> None:
    logs = np.random.default_rng(6).normal(0.0, 0.001, size=(8, 8))
    logs[3] += np.where(np.arange(8) % 2, 0.1, 0.0)
    findings = _analysed_logs(simulated, logs)
    codes = {setting.label: {doubt.code for doubt in setting.doubts} for setting in findings.settings}
    assert [label for label, found in codes.items() if "two_levels" in found] == [findings.settings[3].label]
    assert [label for label, found in codes.items() if "uneven_noise" in found] == [findings.settings[3].label]
    (levels,) = (doubt for doubt in findings.settings[3].doubts if doubt.code == "two_levels")
    assert "10." in levels.message
    assert "4 blocks at the lower, 4 at the upper" in levels.message
    logs[0] = np.random.default_rng(7).normal(0.0, 0.05, size=8)
    (noisy,) = (
        doubt for doubt in _analysed_logs(simulated, logs[[0, 1, 2, 4, 5]]).doubts if doubt.code == "noisy_baseline"
    )
    assert "add blocks with a higher block.baseline_runs" in noisy.remedy


def test_a_setting_that_lacks_a_block_does_not_hide_a_noisy_baseline(simulated: ModuleType) -> None:
    rows, generator = Rows(simulated, NOISY_SETTINGS, 5), np.random.default_rng(8)
    noise = generator.normal(0.0, 0.01, size=rows.shape)
    noise[0] *= 30.0
    groups = rows.hold(noise)
    del groups[4].log_rates["b1"]
    assert len(noisy_baseline(groups, rows.baseline)) == 1
