"""The analysis of a sweep: complete, reproducible to the last digit, and the repeats that it rests on."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from accelsweep.analysis.analyse_sweep import analyse, repeats_from_pilot
from accelsweep.analysis.collect import collect
from accelsweep.analysis.merge_sweeps import Part, analyse_together, merge
from accelsweep.analysis.statistical_power import RepeatsNeeded, smallest_visible_effect
from accelsweep.config.sweep_options import Options
from accelsweep.metrics import rate_unit
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest, PlannedBlock
from accelsweep.results import Outcome
from accelsweep.schedulers.protocol import Resources
from accelsweep.tasks import rates_by_task

pytestmark = pytest.mark.heavy

EXPECTED = {
    (1, 32, "32-true"): Verdict.baseline,
    (1, 32, "bf16-mixed"): Verdict.slower,
    (1, 32, "16-mixed"): Verdict.not_measured,
    (1, 128, "32-true"): Verdict.faster,
    (1, 128, "bf16-mixed"): Verdict.not_yet,
    (2, 32, "32-true"): Verdict.faster,
    (2, 32, "bf16-mixed"): Verdict.not_yet,
    (2, 32, "16-mixed"): Verdict.not_measured,
    (2, 128, "32-true"): Verdict.not_measured,
    (2, 128, "bf16-mixed"): Verdict.not_yet,
}


@pytest.fixture
def findings(example_sweep: SweepFolder) -> Findings:
    return analyse(collect(example_sweep), Manifest.read(example_sweep.manifest))


def test_each_setting_has_the_verdict_that_its_invented_rate_asks_for(findings: Findings) -> None:
    assert {
        tuple(setting.axes[key] for key in findings.axes): setting.verdict for setting in findings.settings
    } == EXPECTED


def test_the_true_ratio_lies_within_the_interval(findings: Findings) -> None:
    for setting in findings.settings:
        if (
            setting.speedup is not None
            and setting.speedup.ratio.low is not None
            and setting.speedup.ratio.high is not None
        ):
            truth = 1.8 if setting.axes["devices"] == 2 else 1.0
            truth *= 1.25 if setting.axes["batch_size"] == 128 else 1.0
            truth *= 0.6 if setting.axes["precision"] == "bf16-mixed" else 1.0
            assert setting.speedup.ratio.low <= truth <= setting.speedup.ratio.high


def test_every_run_and_every_outcome_is_accounted_for(findings: Findings) -> None:
    assert sum(len(setting.runs) for setting in findings.settings) == findings.planned_runs == 24
    assert findings.outcomes[Outcome.not_run] == 1
    assert findings.outcomes[Outcome.unsupported] == 2
    out_of_memory = findings.settings[8]
    assert out_of_memory.outcomes == {Outcome.out_of_memory: 3}
    assert out_of_memory.reasons == ("CPU allocator: cannot allocate 1073741824 bytes",)


def test_what_is_absent_has_its_reason_beside_it(findings: Findings) -> None:
    for setting in findings.settings:
        for summary in setting.metrics.values():
            assert summary.median is not None or summary.reason
        for estimate in (setting.rate, setting.speedup and setting.speedup.ratio, setting.quality):
            assert estimate is None or estimate.low is not None or estimate.reason
        assert all(run.rate or run.reason for run in setting.runs)


def test_the_order_of_the_rows_changes_no_digit(example_sweep: SweepFolder) -> None:
    runs, manifest = collect(example_sweep), Manifest.read(example_sweep.manifest)
    expected = analyse(runs, manifest).model_dump_json()
    for seed in range(5):
        shuffled = random.Random(seed).sample(runs, len(runs))
        assert analyse(shuffled, manifest).model_dump_json() == expected


def test_the_digest_of_the_records_changes_with_any_record(example_sweep: SweepFolder, findings: Findings) -> None:
    (first, *others), manifest = collect(example_sweep), Manifest.read(example_sweep.manifest)
    altered = [replace(first, record_sha256="0" * 64), *others]
    assert analyse(altered, manifest).records_sha256 != findings.records_sha256


def test_analysing_imports_neither_torch_nor_mlflow() -> None:
    code = (
        "import sys, accelsweep.analysis.analyse_sweep, accelsweep.analysis.collect; "
        "import accelsweep.analysis.compare_sweeps; "
        "print([name for name in ('torch', 'lightning', 'mlflow', 'hydra') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_setting_that_left_the_plan_leaves_the_findings(simulated: ModuleType) -> None:
    settings = [{"batch_size": size} for size in (32, 64)]
    rows = [simulated.make_run(axes, block, 1000.0 + block) for axes in settings for block in range(3)]
    found = analyse(rows, simulated.make_manifest(settings[:1], 3))
    assert [setting.axes for setting in found.settings] == settings[:1]


def test_a_plan_without_any_run_gives_findings_and_no_error(simulated: ModuleType) -> None:
    manifest = simulated.make_manifest([{"batch_size": 32}], 0)
    found = analyse([], manifest)
    assert (found.planned_runs, found.settings[0].verdict) == (0, Verdict.not_measured)
    assert found.recommendation.choice is None


SETTINGS = ({"batch_size": 32}, {"batch_size": 64})


def findings_of(simulated: ModuleType, task: str | None, **options: object):
    """Three blocks: the second setting has twice the samples per second, but half the results per hour."""
    config = {} if task is None else {"task": task}
    rows = [
        simulated.make_run(
            axes,
            block,
            100.0 * factor + block,
            results_per_hour=8.0 / factor + 0.01 * block,
            config=config,
        )
        for block in range(3)
        for axes, factor in zip(SETTINGS, (1.0, 2.0), strict=True)
    ]
    return analyse(rows, simulated.make_manifest(SETTINGS, 3, **options))


@pytest.mark.parametrize("task", [None, "train_throughput", "inference", "kernels"])
def test_tasks_are_compared_by_samples_per_second_unless_they_say_otherwise(simulated: ModuleType, task) -> None:
    findings = findings_of(simulated, task)
    assert (findings.rate_metric, findings.rate_unit) == ("samples_per_second", "1/s")
    assert findings.settings[1].verdict is Verdict.faster
    assert findings.settings[1].rate.value == pytest.approx(201, rel=1e-3)
    assert [run.rate for run in findings.settings[1].runs] == [200.0, 201.0, 202.0]


def test_time_to_accuracy_is_compared_by_results_per_hour(simulated: ModuleType) -> None:
    findings = findings_of(simulated, "time_to_accuracy")
    assert (findings.rate_metric, findings.rate_unit) == ("results_per_hour", "results/h")
    assert [setting.verdict for setting in findings.settings] == [Verdict.baseline, Verdict.slower]
    assert findings.settings[1].rate.unit == "results/h"
    assert findings.settings[1].speedup.ratio.value == pytest.approx(0.5, rel=0.01)


def test_the_config_may_name_another_rate(simulated: ModuleType) -> None:
    findings = findings_of(simulated, "train_throughput", rate="results_per_hour")
    assert findings.rate_metric == "results_per_hour"
    assert findings.settings[1].verdict is Verdict.slower


def test_a_rate_that_no_run_has_leaves_every_setting_without_one(simulated: ModuleType) -> None:
    findings = findings_of(simulated, None, rate="bytes_per_second")
    assert {setting.verdict for setting in findings.settings} == {Verdict.not_measured}
    assert findings.rate_unit == "B/s"


def test_a_rate_that_is_none_is_refused(simulated: ModuleType) -> None:
    with pytest.raises(ValidationError, match="samples_per_second"):
        simulated.make_manifest(SETTINGS, 3, rate="samples_per_secnd")


def test_every_tasks_rate_has_a_unit() -> None:
    assert all(rate_unit(rate) for rates in rates_by_task().values() for rate in rates)


@pytest.mark.parametrize("kept", [4, 2])
def test_a_rate_of_those_repeats_alone_that_kept_the_latency_is_doubted(simulated: ModuleType, kept: int) -> None:
    rows = []
    for block in range(4):
        for axes in SETTINGS[:2]:
            value = {"value": 100.0 + block} if block < kept else {"value": None, "reason": "LoadGen: INVALID"}
            metrics = {"queries_per_second": {"unit": "queries/s", **value}}
            rows.append(simulated.make_run(axes, block, 1.0, metrics=metrics))
    findings = analyse(rows, simulated.make_manifest(SETTINGS[:2], 4, rate="queries_per_second"))
    codes = [[doubt.code for doubt in setting.doubts] for setting in findings.settings]
    assert all(("load_refused" in one) == (kept < 4) for one in codes)
    assert findings.rate_unit == "queries/s"


PILOT_SETTINGS = [{"batch_size": 2**power} for power in range(4)]
NOISE = 0.03


def _needed(
    simulated: ModuleType,
    blocks: int,
    noise: float = NOISE,
    factor: float = 1.0,
    settings: list[dict[str, Any]] = PILOT_SETTINGS,
) -> RepeatsNeeded | None:
    generator = random.Random(1)
    rows = [
        simulated.make_run(axes, block, 1000.0 * factor**number * math.exp(generator.gauss(0, noise)))
        for block in range(blocks)
        for number, axes in enumerate(settings)
    ]
    return repeats_from_pilot(rows, simulated.make_manifest(settings, blocks), 0.1, 20)


def test_a_noisier_pilot_asks_for_more_blocks(simulated: ModuleType) -> None:
    quiet, noisy = _needed(simulated, 3, 0.001), _needed(simulated, 3, 0.08)
    assert quiet is not None
    assert noisy is not None
    assert quiet.repeats == 5 < noisy.repeats


def test_effects_do_not_enter_the_answer(simulated: ModuleType) -> None:
    equal, far = _needed(simulated, 3), _needed(simulated, 3, factor=3.0)
    assert equal is not None
    assert far is not None
    assert math.isclose(equal.half_width, far.half_width, rel_tol=1e-9)


def test_asked_again_after_more_blocks_the_answer_stays(simulated: ModuleType) -> None:
    assert _needed(simulated, 7, 0.06) == _needed(simulated, 3, 0.06)


def test_two_settings_have_a_variance_of_their_own(simulated: ModuleType) -> None:
    needed = _needed(simulated, 3, settings=PILOT_SETTINGS[:2])
    assert needed is not None
    assert needed.repeats >= 5


def test_before_3_blocks_and_without_any_spread_there_is_no_answer(simulated: ModuleType) -> None:
    assert _needed(simulated, 2) is None
    assert _needed(simulated, 3, noise=0.0) is None


BASE, X, Y = ({"batch_size": size} for size in (32, 64, 128))
RUN_NOISE = 0.03


def _analysed(simulated: ModuleType, blocks: list[tuple[dict[str, Any], ...]], noise: float = RUN_NOISE) -> Findings:
    """Return the findings of these blocks; all settings are equally fast."""
    generator = random.Random(3)
    settings = list({simulated.name_of(axes): axes for block in blocks for axes in block}.values())
    rows = [
        simulated.make_run(axes, number, 1000.0 * (1.0 + generator.gauss(0, noise)))
        for number, block in enumerate(blocks)
        for axes in block
    ]
    planned = tuple(
        PlannedBlock(
            name=f"b{number}",
            runs=tuple(f"{simulated.name_of(axes)}-r{number}" for axes in block),
            resources=Resources(),
        )
        for number, block in enumerate(blocks)
    )
    manifest = simulated.make_manifest(settings, 3).model_copy(update={"blocks": planned})
    return analyse(rows, manifest)


def test_the_baseline_in_blocks_that_were_added_later_does_not_make_repeats_of_the_others(
    simulated: ModuleType,
) -> None:
    """Three repeats of x, then y joins the plan: six blocks, six runs of the baseline, three pairs for each ratio."""
    findings = _analysed(simulated, [(BASE, X)] * 3 + [(BASE, Y)] * 3)
    assert [setting.measured for setting in findings.settings] == [6, 3, 3]
    assert findings.repeats == 3
    assert [doubt.code for doubt in findings.doubts] == ["few_repeats"]
    assert findings.doubts[0].remedy.endswith("--add-repeats 2")
    assert "There are 3 repeats" in findings.recommendation.sentence


def test_what_is_advised_and_what_can_be_seen_rest_on_the_repeats_of_the_compared_settings(
    simulated: ModuleType,
) -> None:
    """Chunks of a layer and a design without chunks have the same number of pairs, so the same effect can be seen."""
    findings = _analysed(simulated, [(BASE, X)] * 3 + [(BASE, Y)] * 3)
    more = _analysed(simulated, [(BASE, X)] * 5 + [(BASE, Y)] * 5)
    assert (findings.repeats, more.repeats) == (3, 5)
    assert "few_repeats" not in [doubt.code for doubt in more.doubts]
    seen = [findings.smallest_visible_effect, more.smallest_visible_effect]
    assert seen[0] is not None
    assert seen[0] > smallest_visible_effect(6, RUN_NOISE, family=2)
    assert seen[1] == pytest.approx(smallest_visible_effect(5, RUN_NOISE, family=2), rel=0.5)


def test_the_row_with_the_fewest_repeats_counts_and_a_lone_baseline_its_own(simulated: ModuleType) -> None:
    assert _analysed(simulated, [(BASE, X, Y)] * 2 + [(BASE, X)] * 3).repeats == 2
    assert _analysed(simulated, [(BASE,)] * 4).repeats == 4


def _halves(simulated: ModuleType, there: dict[str, str]) -> list[Part]:
    """Return two sweeps of three equal blocks each, of which the second ran on `there`."""
    generator = random.Random(3)
    parts = []
    for name, hardware in (("a", {"host": "Xeon"}), ("b", there)):
        rows = [
            simulated.make_run(axes, block, 1000.0 * (1.0 + generator.gauss(0, RUN_NOISE)), hardware=hardware)
            for axes in (BASE, X)
            for block in range(3)
        ]
        parts.append(Part(name, rows, simulated.make_manifest([BASE, X], 3)))
    return parts


@pytest.mark.parametrize(("there", "repeats"), [({"host": "Xeon"}, 6), ({"host": "EPYC"}, 3)])
def test_sweeps_together_have_the_repeats_that_their_rows_have(
    simulated: ModuleType, there: dict[str, str], repeats: int
) -> None:
    """Equal sweeps are repeats of one another; on another machine every row has its own baseline and its own blocks."""
    findings = analyse_together("a+b", _halves(simulated, there))
    assert findings.repeats == repeats
    assert {setting.speedup.ratio.count for setting in findings.settings if setting.speedup} == {repeats}
    assert ("few_repeats" in [doubt.code for doubt in findings.doubts]) is (repeats < 5)


def test_sweeps_that_are_repeats_of_one_another_share_what_is_to_be_added(
    simulated: ModuleType,
) -> None:
    parts = [
        replace(part, manifest=part.manifest.model_copy(update={"options": Options(repeats=3, repeats_most=1000)}))
        for part in _halves(simulated, {"host": "Xeon"})
    ]
    whole = analyse(*merge("a+b", parts)).recommendation.settle
    shared = analyse_together("a+b", parts).recommendation.settle
    assert whole is not None
    assert shared is not None
    added = [int(line.rpartition(" ")[2]) for line in shared.splitlines()]
    assert len(added) == 2
    assert int(whole.rpartition(" ")[2]) <= sum(added) <= int(whole.rpartition(" ")[2]) + 1


def test_the_noise_is_that_of_the_pairs_and_a_baseline_is_no_pair_of_itself(simulated: ModuleType) -> None:
    """100 sweeps of one comparison: the effect that they can show follows from the noise that was put in.

    The standard deviation of five values is 6 % too small on average; with the self-pair it would be a third too small.
    """
    effects = [
        smallest_visible_effect(5, RUN_NOISE / factor, family=1, threshold=0.02) or 0.0 for factor in (1.0, 2.0**0.5)
    ]
    shown = []
    for seed in range(100):
        generator = random.Random(seed)
        rows = [
            simulated.make_run(axes, block, 1000.0 * (1.0 + generator.gauss(0, RUN_NOISE)))
            for axes in (BASE, X)
            for block in range(5)
        ]
        found = analyse(rows, simulated.make_manifest([BASE, X], 5))
        shown.append(found.smallest_visible_effect or 0.0)
    middle = sum(shown) / len(shown)
    assert effects[1] < 0.9 * effects[0]
    assert middle == pytest.approx(effects[0], rel=0.08)
