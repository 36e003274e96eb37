"""Only comparable settings have a ratio, and every setting without one states why."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from scipy import stats

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings, SettingFinding

BASE, OTHER = {"batch_size": 32}, {"batch_size": 64}
RATES = (1000.0, 1010.0, 990.0)


def _analysed(
    simulated: ModuleType, other: dict[str, Any], base: dict[str, Any] | None = None, **options: Any
) -> Findings:
    rows = [simulated.make_run(BASE, block, rate, **(base or {})) for block, rate in enumerate(RATES)]
    rows += [simulated.make_run(OTHER, block, 2.0 * rate + block, **other) for block, rate in enumerate(RATES)]
    return analyse(rows, simulated.make_manifest([BASE, OTHER], 3, **options))


def _second(findings: Findings) -> SettingFinding:
    return findings.settings[1]


def test_like_compared_with_like_gives_a_ratio_a_pair_and_a_verdict(simulated: ModuleType) -> None:
    findings = _analysed(simulated, {})
    assert _second(findings).verdict is Verdict.faster
    assert _second(findings).speedup is not None
    assert _second(findings).speedup.paired
    assert findings.settings[0].verdict is Verdict.baseline
    assert findings.refusals == ()


@pytest.mark.parametrize(
    ("change", "field", "values"),
    [
        ({"software": {"torch": "2.12.1"}}, "torch", ("2.12.1", "2.13.0")),
        ({"hardware": {"host": "EPYC"}}, "host", ("EPYC", "Xeon")),
        ({"hardware": {"host": "Xeon", "device": "H100"}}, "device", ("H100", "none")),
        ({"config": {"threads": 4}}, "threads", ("4", "null")),
        ({"config": {"model": {"width": 8}}}, "model.width", ("8", "null")),
    ],
)
def test_what_was_not_swept_must_be_equal(
    simulated: ModuleType, change: dict[str, Any], field: str, values: tuple[str, str]
) -> None:
    """A refusal names the field and both values, and the field can be allowed by name."""
    findings = _analysed(simulated, change)
    finding = _second(findings)
    assert (finding.verdict, finding.speedup) == (Verdict.refused, None)
    assert findings.refusals == (finding.verdict_reason,)
    for part in (f"{field} differs", *values, finding.setting, f"analysis.across=[{field}]"):
        assert part in finding.verdict_reason
    allowed = _analysed(simulated, change, across=(field,))
    assert _second(allowed).verdict is Verdict.faster


def test_sources_that_both_use_must_be_equal_and_those_of_one_alone_came_with_what_was_swept(
    simulated: ModuleType,
) -> None:
    """As with `model=mlp,mine`, or with a callback of the user's own that is swept."""
    mine = {"sources": {"mine": "abc"}}
    assert _second(_analysed(simulated, mine)).verdict is Verdict.faster
    assert _second(_analysed(simulated, mine, mine)).verdict is Verdict.faster
    refused = _second(_analysed(simulated, mine, {"sources": {"mine": "def"}}))
    assert refused.verdict is Verdict.refused
    for part in ("mine differs", "abc", "def", "analysis.across=[mine]"):
        assert part in refused.verdict_reason


def test_a_gpu_may_be_compared_with_the_cpu_of_its_host(simulated: ModuleType) -> None:
    settings = [{"accelerator": "cpu"}, {"accelerator": "cuda"}]
    gpu = {"host": "Xeon", "device": "H100", "driver": "570"}
    rows = [simulated.make_run(settings[0], block, rate) for block, rate in enumerate(RATES)]
    rows += [
        simulated.make_run(settings[1], block, 20 * rate + block, hardware=gpu) for block, rate in enumerate(RATES)
    ]
    findings = analyse(rows, simulated.make_manifest(settings, 3))
    assert _second(findings).verdict is Verdict.faster
    assert [one.name for one in findings.hardware] == ["H100 in Xeon", "Xeon"]


def test_two_kinds_of_gpu_give_two_rows_each_against_its_own_baseline(simulated: ModuleType) -> None:
    rows = []
    for block in range(6):
        kind, factor = ("A100", 1.0) if block < 3 else ("H100", 2.0)
        hardware = {"host": "EPYC", "device": kind}
        rows.append(simulated.make_run(BASE, block, factor * RATES[block % 3], hardware=hardware))
        rows.append(simulated.make_run(OTHER, block, factor * 1.5 * RATES[block % 3] + block, hardware=hardware))
    findings = analyse(rows, simulated.make_manifest([BASE, OTHER], 6))
    assert [setting.hardware for setting in findings.settings] == ["A100 in EPYC", "H100 in EPYC"] * 2
    assert [setting.speedup.ratio.value for setting in findings.settings if setting.speedup] == pytest.approx(
        [1.5, 1.5], abs=0.01
    )
    assert findings.family == 2


def test_another_build_of_the_same_version_is_a_doubt_and_no_refusal(simulated: ModuleType) -> None:
    finding = _second(_analysed(simulated, {"builds": {"torch": "cu130"}}, {"builds": {"torch": "cpu"}}))
    assert finding.verdict is Verdict.faster
    (doubt,) = (doubt for doubt in finding.doubts if doubt.code == "build_differs")
    assert "cu130" in doubt.message
    assert "cpu" in doubt.message


def test_fewer_than_three_shared_blocks_are_compared_unpaired_with_a_doubt(simulated: ModuleType) -> None:
    rows = [simulated.make_run(BASE, block, rate) for block, rate in enumerate(RATES)]
    rows += [simulated.make_run(OTHER, block, 2 * RATES[block] + block) for block in (0, 1)]
    finding = _second(analyse(rows, simulated.make_manifest([BASE, OTHER], 3)))
    assert finding.speedup is not None
    assert not finding.speedup.paired
    assert "unpaired" in {doubt.code for doubt in finding.doubts}


@pytest.mark.parametrize(("blocks", "found"), [(2, Verdict.not_yet), (3, Verdict.faster)])
def test_settings_on_unlike_nodes_are_compared_although_no_block_can_hold_both(
    simulated: ModuleType, blocks: int, found: Verdict
) -> None:
    """A GPU's node has another processor, too. Where the settings name their devices, that is the question."""
    base, other = {"accelerator": "cpu"}, {"accelerator": "cuda:h100"}
    gpu = {"host": "EPYC", "device": "H100", "driver": "570"}
    rows = [simulated.make_run(base, block, 100.0 + block % 3) for block in range(3)]
    rows += [
        replace(simulated.make_run(other, block, 2000.0 + block, hardware=gpu), block=f"g{block}")
        for block in range(blocks)
    ]
    finding = _second(analyse(rows, simulated.make_manifest([base, other], 3)))
    assert finding.verdict is found
    (doubt,) = (doubt for doubt in finding.doubts if doubt.code == "unlike_nodes")
    assert doubt.message == (
        "measured on 1 node of one kind, the baseline on 1 node of another; the interval is based on blocks and "
        "applies only to these nodes: a single node reveals nothing about others of its kind"
    )


def test_a_ratio_across_kinds_of_node_says_how_many_nodes_of_each_stand_behind_it(simulated: ModuleType) -> None:
    base, other = {"accelerator": "cpu"}, {"accelerator": "cuda:h100"}
    gpu = {"host": "EPYC", "device": "H100", "driver": "570"}
    rows = [simulated.make_run(base, block, 100.0 + block % 3) for block in range(4)]
    rows += [
        replace(simulated.make_run(other, block, 2000.0 + block, hardware=gpu), block=f"g{block}") for block in range(4)
    ]
    several = [replace(row, environment={"before": {"machine": f"m{number % 2}"}}) for number, row in enumerate(rows)]
    finding = _second(analyse(several, simulated.make_manifest([base, other], 4)))
    (doubt,) = (doubt for doubt in finding.doubts if doubt.code == "unlike_nodes")
    assert doubt.message.startswith("measured on 2 nodes of one kind, the baseline on 2 nodes of another; ")
    assert doubt.message.endswith("applies only to these nodes: other nodes may differ")


def test_runs_that_share_a_block_count_as_one_unit(simulated: ModuleType) -> None:
    runs = [simulated.make_run(axes, block, rate) for axes in (BASE, OTHER) for block, rate in enumerate(RATES)]
    rows = [replace(run, block="b0") for run in runs]
    finding = _second(analyse(rows, simulated.make_manifest([BASE, OTHER], 3)))
    assert finding.measured == 3
    assert finding.rate is not None
    assert (finding.rate.count, finding.rate.low) == (1, None)


def test_a_setting_that_was_not_measured_says_how_its_runs_ended(simulated: ModuleType) -> None:
    rows = [simulated.make_run(BASE, block, rate) for block, rate in enumerate(RATES)]
    rows += [simulated.make_run(OTHER, block, None, outcome="out_of_memory", reason="too large") for block in range(3)]
    finding = _second(analyse(rows, simulated.make_manifest([BASE, OTHER], 3)))
    assert finding.verdict is Verdict.not_measured
    assert finding.verdict_reason == "3 of 3 runs: out_of_memory (too large)"


def test_without_a_measured_baseline_nothing_is_faster_and_the_reason_is_said(simulated: ModuleType) -> None:
    rows = [simulated.make_run(BASE, block, None) for block in range(3)]
    rows += [simulated.make_run(OTHER, block, rate) for block, rate in enumerate(RATES)]
    findings = analyse(rows, simulated.make_manifest([BASE, OTHER], 3))
    assert _second(findings).verdict is Verdict.undecided
    assert "the baseline was not measured" in _second(findings).verdict_reason
    assert findings.recommendation.choice is None
    assert "baseline was not measured" in findings.recommendation.sentence


def test_settings_that_failed_still_widen_the_family(simulated: ModuleType) -> None:
    settings = [{"batch_size": size} for size in (32, 64, 128, 256)]
    rows = [simulated.make_run(axes, block, rate) for axes in settings[:2] for block, rate in enumerate(RATES)]
    rows += [simulated.make_run(axes, block, None) for axes in settings[2:] for block in range(3)]
    findings = analyse(rows, simulated.make_manifest(settings, 3))
    assert findings.family == 3


def test_an_axis_decides_all_that_lies_below_it(simulated: ModuleType) -> None:
    settings = [{"model": "cnn"}, {"model": "mlp"}]
    configs = [{"model": {"_target_": "Cnn", "width": 8}}, {"model": {"_target_": "Mlp"}}]
    rows = [
        simulated.make_run(axes, block, rate + block * index, config=config)
        for index, (axes, config) in enumerate(zip(settings, configs, strict=True))
        for block, rate in enumerate(RATES)
    ]
    findings = analyse(rows, simulated.make_manifest(settings, 3))
    assert findings.refusals == ()


def _twice(simulated: ModuleType, blocks: int, second: float = 1.0) -> Findings:
    """Return a sweep whose baseline runs twice in each block, the second time `second` times as fast."""
    rows, noise = [], (1.0, 1.02, 0.97, 1.01, 0.99)
    for block in range(blocks):
        for number, factor in ((2 * block, 1.0), (2 * block + 1, second)):
            rate = 1000.0 * noise[block] * factor
            rows.append(replace(simulated.make_run(BASE, number, rate), block=f"b{block}"))
        rows.append(simulated.make_run(OTHER, block, 2000.0 * (1.0 + block / 1000.0)))
    return analyse(rows, simulated.make_manifest([BASE, OTHER], blocks))


def test_both_runs_of_the_baseline_in_a_block_are_averaged_on_the_log_scale(simulated: ModuleType) -> None:
    """A second run four times as fast doubles the block's value: the ratio halves, and its interval stays as wide."""
    once, twice = (_second(_twice(simulated, 3, second)).speedup for second in (1.0, 4.0))
    assert once is not None
    assert twice is not None
    assert once.paired
    assert (once.ratio.count, twice.ratio.count) == (3, 3)
    for ours, theirs in ((once.ratio.value, twice.ratio.value), (once.ratio.low, twice.ratio.low)):
        assert ours is not None
        assert theirs is not None
        assert theirs == pytest.approx(ours / 2.0, rel=1e-5)


def test_a_baseline_that_runs_twice_per_block_has_as_many_repeats_as_blocks(simulated: ModuleType) -> None:
    findings = _twice(simulated, 3)
    base = findings.settings[0]
    assert (findings.repeats, base.measured) == (3, 6)
    assert base.rate is not None
    assert base.rate.count == 3
    assert {doubt.code for doubt in base.doubts} == set()


def test_a_block_in_which_one_of_the_baselines_runs_failed_has_the_other_as_its_value(simulated: ModuleType) -> None:
    rows = [simulated.make_run(OTHER, block, 2000.0 + block) for block in range(3)]
    for number in range(6):
        rate = None if number == 3 else 1000.0 + number % 3
        rows.append(replace(simulated.make_run(BASE, number, rate), block=f"b{number // 2}"))
    finding = _second(analyse(rows, simulated.make_manifest([BASE, OTHER], 3)))
    assert finding.speedup is not None
    assert (finding.speedup.paired, finding.speedup.ratio.count) == (True, 3)


def _four(simulated: ModuleType, noise: dict[int, float], settings: int = 4) -> Findings:
    """Return a sweep of `settings` equal settings in three blocks; `noise` by setting, 0.01 otherwise."""
    axes, shape = [{"batch_size": 2**power} for power in range(settings)], (1.0, -0.5, -0.6)
    rows = [
        simulated.make_run(one, block, 1000.0 * (1.0 + noise.get(setting, 0.01) * shape[(block + setting) % 3]))
        for setting, one in enumerate(axes)
        for block in range(3)
    ]
    return analyse(rows, simulated.make_manifest(axes, 3))


def _width(findings: Findings, setting: int) -> float:
    speedup = findings.settings[setting].speedup
    assert speedup is not None
    assert speedup.ratio.low is not None
    assert speedup.ratio.high is not None
    return speedup.ratio.high / speedup.ratio.low


def test_what_the_other_rows_show_goes_into_a_rows_interval(simulated: ModuleType) -> None:
    """Alone, three blocks and three comparisons have a critical value of 7.6; together it is half of that."""
    quiet = _four(simulated, {})
    loud = _four(simulated, {2: 0.05, 3: 0.05})
    assert _width(quiet, 1) < _width(loud, 1)
    assert quiet.settings[1].speedup.ratio.value == loud.settings[1].speedup.ratio.value


def test_two_settings_have_the_plain_paired_interval(simulated: ModuleType) -> None:
    findings = _four(simulated, {}, settings=2)
    rates = [[run.rate for run in setting.runs] for setting in findings.settings]
    differences = [math.log(other / base) for base, other in zip(*rates, strict=True)]
    low, high = stats.t.interval(0.95, 2, statistics.fmean(differences), stats.sem(differences))
    assert findings.settings[1].speedup.ratio.low == pytest.approx(math.exp(low), rel=1e-4)
    assert findings.settings[1].speedup.ratio.high == pytest.approx(math.exp(high), rel=1e-4)
