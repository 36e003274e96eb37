"""Quality is paired by seed and judged with the configured margin."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.intervals import critical_t
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Certainty, SettingFinding

BASE, OTHER = {"batch_size": 32}, {"batch_size": 64}
BASE_QUALITY = (0.95, 0.80, 0.90, 0.85, 0.99)
NOISE = (0.0003, -0.0002, 0.0001, 0.0, -0.0001)


def _judged(
    simulated: ModuleType, shift: float, config: dict[str, Any] | None = None, repeats: int = 5
) -> SettingFinding:
    rows = []
    for block in range(repeats):
        quality = BASE_QUALITY[block]
        rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=quality, config=config or {}))
        other = quality + shift + NOISE[block]
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=other, config=config or {}))
    return analyse(rows, simulated.make_manifest([BASE, OTHER], repeats)).settings[1]


@pytest.mark.parametrize(
    ("shift", "verdict"),
    [
        (0.0, "quality: same"),
        (-0.02, "faster, but worse"),
        (0.02, "quality: better"),
        (0.01, "quality: not worse"),
        (-0.01, "quality: undecided at 5 repeats"),
    ],
)
def test_the_difference_is_judged_against_the_margin(simulated: ModuleType, shift: float, verdict: str) -> None:
    """The seeds' own spread (0.80 to 0.99) is far above the margin of 0.01: only pairing by seed can tell."""
    finding = _judged(simulated, shift)
    assert finding.quality_verdict == verdict
    assert finding.quality_difference is not None
    assert finding.quality_difference.value == pytest.approx(shift, abs=1e-4)


@pytest.mark.parametrize(
    ("shift", "margin", "verdict"),
    [
        (0.5, None, "quality: same"),
        (-2.0, None, "faster, but worse"),
        (0.5, 0.01, "quality: better"),
        (-2.0, 3.0, "quality: same"),
    ],
)
def test_the_default_margin_is_relative_for_a_metric_beyond_one(
    simulated: ModuleType, shift: float, margin: float | None, verdict: str
) -> None:
    rows = [
        simulated.make_run(axes, block, rate + block, quality=100 * BASE_QUALITY[block] + change)
        for block in range(5)
        for axes, rate, change in ((BASE, 1000.0, 0.0), (OTHER, 2000.0, shift + NOISE[block]))
    ]
    manifest = simulated.make_manifest([BASE, OTHER], 5)
    rules = manifest.options.analysis.model_copy(update={"quality_margin": margin})
    manifest = manifest.model_copy(update={"options": manifest.options.model_copy(update={"analysis": rules})})
    assert analyse(rows, manifest).settings[1].quality_verdict == verdict


def test_where_less_is_better_a_higher_loss_is_worse(simulated: ModuleType) -> None:
    config = {"measure": {**simulated.CONFIG["measure"], "quality_metric": "val_loss", "quality_better": "min"}}
    assert _judged(simulated, 0.02, config).quality_verdict == "faster, but worse"
    assert _judged(simulated, -0.02, config).quality_verdict == "quality: better"


@pytest.mark.parametrize(("metric", "high"), [("val_accuracy", 1.0), ("test/F1", 1.0), ("val_reward", None)])
def test_the_interval_of_a_share_ends_at_one_and_no_other_does(
    simulated: ModuleType, metric: str, high: float | None
) -> None:
    config = {"measure": {**simulated.CONFIG["measure"], "quality_metric": metric, "quality_better": "max"}}
    quality = _judged(simulated, 0.0, config, repeats=3).quality
    assert quality is not None
    assert quality.high is not None
    assert quality.high == high if high else quality.high > 1.0


def test_identical_quality_for_three_seeds_is_the_same_and_not_unknown(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, 1000.0 + block, quality=BASE_QUALITY[block])
        for axes in (BASE, OTHER)
        for block in range(3)
    ]
    finding = analyse(rows, simulated.make_manifest([BASE, OTHER], 3)).settings[1]
    assert finding.quality_verdict == "quality: same (identical for 3 seeds)"


def test_one_repeat_cannot_judge_quality(simulated: ModuleType) -> None:
    assert _judged(simulated, -0.5, repeats=1).quality_verdict == "quality: undecided at 1 repeat"


def test_quality_pairs_by_seed_and_not_by_block(simulated: ModuleType) -> None:
    rows = []
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=BASE_QUALITY[block]))
        seed = 4 - block
        quality = BASE_QUALITY[seed] + NOISE[block]
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=quality, seed=seed))
    finding = analyse(rows, simulated.make_manifest([BASE, OTHER], 5)).settings[1]
    assert finding.quality_verdict == "quality: same"


def test_a_baseline_that_runs_twice_in_a_block_is_one_value_of_its_seed(simulated: ModuleType) -> None:
    """As planned: repeats 2k and 2k + 1 of the baseline share the seed of block k, and are averaged on either side."""
    rows = []
    for block in range(5):
        for second in (0, 1):
            run = {"repeat": 2 * block + second, "run": f"{simulated.name_of(BASE)}-r{2 * block + second}"}
            quality = BASE_QUALITY[block] + (-0.003, 0.003)[second]
            rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=quality, **run))
        quality = BASE_QUALITY[block] + NOISE[block]
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=quality))
    once = _judged(simulated, 0.0)
    base, other = analyse(rows, simulated.make_manifest([BASE, OTHER], 5)).settings
    assert (base.measured, base.quality.count) == (10, 5)
    assert other.quality_difference.count == 5
    assert other.quality_verdict == once.quality_verdict == "quality: same"
    assert other.quality_difference.high == pytest.approx(once.quality_difference.high, rel=1e-4)


def test_without_a_reading_the_quality_is_not_measured(simulated: ModuleType) -> None:
    rows = [simulated.make_run(axes, block, 1000.0 + block) for axes in (BASE, OTHER) for block in range(3)]
    finding = analyse(rows, simulated.make_manifest([BASE, OTHER], 3)).settings[1]
    assert (finding.quality, finding.quality_verdict) == (None, "quality: not measured")


def test_a_setting_that_is_faster_but_worse_is_not_recommended(simulated: ModuleType) -> None:
    rows = []
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=0.9 + block / 100))
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=0.7 + block / 100 + NOISE[block]))
    findings = analyse(rows, simulated.make_manifest([BASE, OTHER], 5))
    assert findings.settings[1].verdict is Verdict.faster
    assert findings.recommendation.choice is not None
    assert findings.recommendation.choice.setting == findings.settings[0].setting
    assert findings.recommendation.headline == (
        "Stay with batch 32: batch 64 is 1.994x as fast, but accuracy falls from 0.920 to 0.720"
    )
    assert "lower by 19.97 to 20.03 points." in findings.recommendation.detail


@pytest.mark.parametrize(("noise", "helps"), [(80, True), (400, False)])
def test_a_faster_setting_whose_quality_is_not_settled_is_not_recommended(
    simulated: ModuleType, noise: float, *, helps: bool
) -> None:
    """Its mean is not lower, but its interval does not exclude a loss beyond the margin. 20 blocks are the most."""
    rows = []
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=0.9))
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=0.9 + noise * NOISE[block]))
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER], 5)).recommendation
    assert advice.choice is None
    assert advice.headline == "Batch 64 is 1.994x as fast; its accuracy is not confirmed yet"
    assert advice.certainty is Certainty.quality_open
    assert advice.fastest is not None
    assert advice.fastest.setting == simulated.name_of(OTHER)
    assert "it may be lower by up to" in advice.detail
    assert " is allowed." in advice.detail
    assert ("--add-repeats" in (advice.settle or "")) is helps
    assert ("More repeats are unlikely to settle it: train longer before validation" in advice.sentence) is not helps


def test_where_repeats_do_not_help_the_command_is_a_sweep_that_trains_longer(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, rate + block, quality=0.9 + 400 * noise * NOISE[block],
                           config={"measure": {**simulated.CONFIG["measure"], "quality_samples": 8192}})
        for block in range(5)
        for axes, rate, noise in ((BASE, 1000.0, 0), (OTHER, 2000.0, 1))
    ]  # fmt: skip
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER], 5)).recommendation
    assert advice.settle == (
        "accelsweep run experiment=simulated measure.quality_samples=16384 --name simulated-longer"
    )
    assert advice.settle_purpose == "To train longer before validation"


def test_a_loss_that_is_shown_but_may_be_within_the_margin_is_still_open(simulated: ModuleType) -> None:
    rows = []
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0 + block, quality=0.9))
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=0.8905 + 3 * NOISE[block]))
    findings = analyse(rows, simulated.make_manifest([BASE, OTHER], 5))
    assert findings.settings[1].quality_verdict.startswith("quality: undecided")
    assert findings.recommendation.choice is None
    assert (
        "Accuracy 0.891 against 0.900: it may be lower by up to 1.1 points; 1.0 is allowed."
        in findings.recommendation.detail
    )


@pytest.mark.parametrize(("rate", "named"), [(2005.0, "batch 128"), (4000.0, "batch 64")])
def test_of_settings_as_fast_the_one_without_a_shown_loss_is_named(
    simulated: ModuleType, rate: float, named: str
) -> None:
    """Batch 64 loses accuracy and batch 128 may not: a reader gains nothing from the loss unless it is faster."""
    rows, third = [], {"batch_size": 128}
    for block in range(5):
        noise = 15 * (block - 2)
        rows.append(simulated.make_run(BASE, block, 1000.0, quality=0.9))
        rows.append(simulated.make_run(OTHER, block, rate + noise, quality=0.8905 + 3 * NOISE[block]))
        rows.append(simulated.make_run(third, block, 2000.0 - noise, quality=0.9 + 80 * NOISE[block]))
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER, third], 5)).recommendation
    assert advice.choice is None
    assert advice.headline.lower().startswith(f"{named} is ")
    assert advice.headline.endswith("its accuracy is not confirmed yet")


def test_an_open_setting_is_named_before_a_faster_one_that_loses(simulated: ModuleType) -> None:
    """The loss is stated, too, and neither is recommended."""
    rows, third = [], {"batch_size": 128}
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0, quality=0.9))
        rows.append(simulated.make_run(OTHER, block, 4000.0 + block, quality=0.7 + NOISE[block]))
        rows.append(simulated.make_run(third, block, 2000.0 - block, quality=0.9 + 80 * NOISE[block]))
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER, third], 5)).recommendation
    assert advice.choice is None
    assert advice.headline.startswith("Batch 128 is 1.998x as fast; its")
    assert "Not recommended: batch 64 is 4.002x as fast, but accuracy falls from 0.900 to 0.700." in advice.detail


def test_a_rival_that_loses_quality_is_no_rival(simulated: ModuleType) -> None:
    rows, third = [], {"batch_size": 128}
    for block in range(5):
        rows.append(simulated.make_run(BASE, block, 1000.0, quality=0.9))
        rows.append(simulated.make_run(OTHER, block, 2001.0 + 9 * (block - 2), quality=0.7 + NOISE[block]))
        rows.append(simulated.make_run(third, block, 2000.0 - block, quality=0.9 + NOISE[block]))
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER, third], 5)).recommendation
    assert advice.headline.endswith("as fast and keeps its accuracy")
    assert advice.certainty is Certainty.sure
    assert "May be just as good" not in advice.detail


def test_the_loss_of_a_metric_that_is_no_share_has_its_own_unit(simulated: ModuleType) -> None:
    measure = {**simulated.CONFIG["measure"], "quality_metric": "val_loss", "quality_better": "min"}
    rows = []
    for block in range(5):
        config = {"measure": measure}
        rows.append(simulated.make_run(BASE, block, 1000.0, quality=2.0, config=config))
        rows.append(simulated.make_run(OTHER, block, 2000.0 - block, quality=2.0 + 80 * NOISE[block], config=config))
    advice = analyse(rows, simulated.make_manifest([BASE, OTHER], 5)).recommendation
    assert advice.headline.endswith("; its loss is not confirmed yet")
    assert "it may be higher by up to 0.0" in advice.detail
    assert "; 0.020 is allowed." in advice.detail


def test_the_differences_in_quality_share_what_their_seeds_show_of_the_noise(simulated: ModuleType) -> None:
    """Three seeds show little; with other rows beside it the same differences give a narrower interval."""

    def width(rows: int) -> float:
        settings = [{"batch_size": 32 * 2**power} for power in range(rows)]
        runs = [
            simulated.make_run(axes, block, 1000.0 + block, quality=0.9 + 0.001 * ((block * (number + 2)) % 5))
            for number, axes in enumerate(settings)
            for block in range(3)
        ]
        found = analyse(runs, simulated.make_manifest(settings, 3)).settings[1].quality_difference
        assert found is not None
        plain = critical_t(2, 0.95, rows - 1)
        return (found.high - found.low) / plain

    assert width(6) < 0.6 * width(2)
