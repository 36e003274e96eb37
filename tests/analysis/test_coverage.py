"""The fast half of benchmarks/coverage.py: intervals cover the truth, and equal settings are rarely distinguished."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

from accelsweep.analysis.analyse_sweep import analyse

SWEEPS = 3000
LEFT_TO_CHANCE = 0.01
"""What 3000 sweeps leave to chance around 95 %: two and a half standard errors."""


@pytest.mark.parametrize("blocks", [3, 5])
@pytest.mark.parametrize(
    "scenario",
    ["equal normal", "baseline twice", "t3", "baseline 3x", "baseline 10x", "one setting 10x", "log-sd spread 0.5"],
)
def test_intervals_hold_together_whoever_is_noisy(coverage: ModuleType, scenario: str, blocks: int) -> None:
    noise = coverage.SCENARIOS[scenario](np.random.default_rng(7), (SWEEPS, 8, blocks))
    found = coverage.intervals(noise)
    assert found.covering(found.new).mean() >= coverage.COVERED - LEFT_TO_CHANCE


@pytest.mark.parametrize("scenario", ["baseline 3x", "baseline 10x"])
def test_many_settings_do_not_make_a_noisy_baseline_look_known(coverage: ModuleType, scenario: str) -> None:
    """The rows share the baseline's luck; a prior without a cap would take that for knowledge and miss the gate."""
    noise = coverage.SCENARIOS[scenario](np.random.default_rng(7), (SWEEPS, 32, 3))
    found = coverage.intervals(noise)
    assert found.covering(found.new).mean() >= coverage.COVERED


@pytest.mark.parametrize("scenario", ["equal normal", "baseline 3x", "log-sd spread 0.5"])
def test_equal_settings_look_equal(coverage: ModuleType, scenario: str) -> None:
    noise = coverage.NOISE * coverage.SCENARIOS[scenario](np.random.default_rng(8), (SWEEPS, 8, 3))
    found = coverage.intervals(noise)
    assert found.deciding(found.new).mean() <= coverage.FALSE + LEFT_TO_CHANCE


def test_at_3_blocks_intervals_are_less_than_half_as_wide_as_plain_ones(coverage: ModuleType) -> None:
    found = coverage.intervals(coverage.normal(np.random.default_rng(9), (SWEEPS, 8, 3)))
    assert np.median(found.new) <= coverage.NARROWER * np.median(found.old)


@pytest.mark.parametrize(("settings", "blocks"), [(2, 3), (4, 3), (8, 5)])
def test_the_benchmark_has_the_intervals_that_a_report_prints(
    coverage: ModuleType, simulated: ModuleType, settings: int, blocks: int
) -> None:
    noise = 0.03 * coverage.normal(np.random.default_rng(10), (1, settings, blocks))
    axes = [{"batch_size": 2**power} for power in range(settings)]
    rows = [
        simulated.make_run(axes[setting], block, 1000.0 * math.exp(noise[0, setting, block]))
        for setting in range(settings)
        for block in range(blocks)
    ]
    printed = [
        (setting.speedup.ratio.low, setting.speedup.ratio.high)
        for setting in analyse(rows, simulated.make_manifest(axes, blocks)).settings
        if setting.speedup
    ]
    one = coverage.intervals(noise)
    expected = np.exp([one.centers[0] - one.new[0], one.centers[0] + one.new[0]]).T
    assert np.array(printed) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("scenario", ["equal normal", "baseline 3x"])
def test_blocks_that_follow_from_a_pilots_variances_leave_intervals_their_coverage(
    coverage: ModuleType, scenario: str
) -> None:
    """With 3 blocks as the least in all, instead of 5, four settings with a noisy baseline fall below the gate."""
    held, blocks = coverage._stein(0.02 * coverage.SCENARIOS[scenario](np.random.default_rng(11), (SWEEPS, 4, 20)))
    assert held >= coverage.COVERED - LEFT_TO_CHANCE
    assert blocks >= 5
