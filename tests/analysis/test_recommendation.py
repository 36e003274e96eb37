"""A recommendation is a sentence whose numbers stand in the findings, or a command that would settle it."""

from __future__ import annotations

import shlex
from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.headline import MOST_WORDS, gain_headline, headline_name, ratio_text
from accelsweep.analysis.merge_sweeps import Part, analyse_together
from accelsweep.analysis.recommendation import block_seconds
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.config.prices import Prices
from accelsweep.config.site import Site
from accelsweep.devices.device_kind import Device
from accelsweep.records.estimates import Estimate, Speedup, Verdict
from accelsweep.records.findings import Certainty, Findings, SettingFinding
from accelsweep.records.plan import Manifest
from accelsweep.results import Outcome

SETTINGS = [
    {"batch_size": size, "precision": precision} for size in (32, 256) for precision in ("32-true", "bf16-mixed")
]
WOBBLE = (0.0, 0.001, -0.001, 0.0005, -0.0005)


def _analysed(
    simulated: ModuleType,
    ratios: tuple[float, ...],
    noise: float = 1.0,
    repeats_most: int = 20,
    times: dict[str, int] | None = None,
    **changes: Any,
) -> Findings:
    rows = [
        simulated.make_run(
            axes, block, 1000.0 * ratio * (1.0 + noise * (index + 1) * wobble), host_pss_bytes=6.1e9, **(times or {})
        )
        for index, (axes, ratio) in enumerate(zip(SETTINGS, ratios, strict=True))
        for block, wobble in enumerate(WOBBLE)
    ]
    manifest = _with_most(simulated.make_manifest(SETTINGS, 5), repeats_most).model_copy(update=changes)
    return analyse(rows, manifest)


def _with_most(manifest: Manifest, most: int) -> Manifest:
    return manifest.model_copy(update={"options": manifest.options.model_copy(update={"repeats_most": most})})


def _added(findings: Findings) -> int:
    """Return how many blocks the advised command adds, 0 where none is advised."""
    advice = findings.recommendation
    assert (advice.settle or "").partition(" --add-repeats ")[2] == str(advice.settle_blocks or "")
    return advice.settle_blocks


def test_the_fastest_sound_setting_is_recommended_in_one_sentence(simulated: ModuleType) -> None:
    site = Site(name="s", inventory=(Device(accelerator="cpu", model="Xeon", count=2, memory_bytes=10_000_000_000),))
    advice = _analysed(simulated, (1.0, 1.5, 1.2, 2.1), site=site).recommendation
    assert advice.choice is not None
    assert advice.choice.setting == simulated.name_of(SETTINGS[3])
    assert advice.headline == "Batch 256, bf16-mixed is 2.100x as fast"
    assert advice.detail == "2.093x to 2.107x (95 %), compared with batch 32, 32-bit. Accuracy was not measured."
    assert advice.sentence == f"{advice.headline}. {advice.detail}"
    assert advice.certainty is Certainty.sure
    assert advice.settle is None


def test_a_rival_that_cannot_be_told_from_the_best_is_named(simulated: ModuleType) -> None:
    advice = _analysed(simulated, (1.0, 1.5, 2.1, 2.101)).recommendation
    assert "May be just as good: batch 256, 32-bit." in advice.sentence
    assert advice.certainty is Certainty.among_the_best


def test_a_rival_counts_whatever_its_verdict_against_the_baseline_is(simulated: ModuleType) -> None:
    """A noisy setting is undecided against the baseline, and may still be as fast as the best one."""
    rows = []
    for block, wobble in enumerate(WOBBLE):
        rows.append(simulated.make_run(SETTINGS[0], block, 1000.0 * (1 + wobble)))
        rows.append(simulated.make_run(SETTINGS[1], block, 1300.0 * (1 - wobble)))
        rows.append(simulated.make_run(SETTINGS[2], block, 1300.0 * (1 + 300 * wobble)))
    findings = analyse(rows, simulated.make_manifest(SETTINGS[:3], 5))
    assert [setting.verdict for setting in findings.settings[1:]] == [Verdict.faster, Verdict.undecided]
    assert "May be just as good: batch 256, 32-bit." in findings.recommendation.sentence


BUSY = [{"code": "busy_cpu", "message": "other processes kept 1.33 of 2 cores busy", "remedy": "stop them"}]


@pytest.mark.parametrize("side", [0, 1])
def test_what_was_measured_on_a_busy_machine_has_no_verdict_and_is_not_recommended(
    simulated: ModuleType, side: int
) -> None:
    """However fast it looks: three of its five runs, or of the baseline's, were disturbed."""
    rows = [
        simulated.make_run(axes, block, rate + block, doubts=BUSY if index == side and block < 3 else [])
        for index, (axes, rate) in enumerate(((SETTINGS[0], 1000.0), (SETTINGS[3], 31000.0)))
        for block in range(5)
    ]
    findings = analyse(rows, simulated.make_manifest([SETTINGS[0], SETTINGS[3]], 5))
    assert findings.settings[1].verdict is Verdict.disturbed
    assert "3 of 5 runs: other processes kept 1.33 of 2 cores busy" in findings.settings[1].verdict_reason
    assert findings.recommendation.choice is None
    assert findings.recommendation.sentence.startswith("No answer yet: 1 of 1 comparison was disturbed.")
    assert findings.recommendation.settle_purpose == "To measure the 3 disturbed runs again"
    assert findings.recommendation.certainty is Certainty.disturbed
    assert findings.recommendation.settle is not None
    assert findings.recommendation.settle.startswith("accelsweep retry simulated --outcome disturbed && accelsweep run")


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (2.9, 327.0, "above 2.9x the rate of batch 32"),
        (0.01, 0.5, "below 0.50x the rate of batch 32"),
        (0.1, 8.0, "its rate relative to that of batch 32 is not known yet"),
        (2.0, 2.2, "2.1x [2.0, 2.2] the rate of batch 32"),
    ],
)
def test_a_sentence_gives_no_number_whose_interval_spans_more_than_a_factor_of_twenty(
    low: float, high: float, words: str
) -> None:
    ratio = Estimate(value=2.1, low=low, high=high, unit="1", confidence=0.95, count=3)
    assert ratio_text(ratio, "batch 32") == words


def test_half_of_the_runs_disturbed_leave_a_verdict_and_the_doubt(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, rate + block, doubts=BUSY if block < 2 else [])
        for axes, rate in ((SETTINGS[0], 1000.0), (SETTINGS[3], 2000.0))
        for block in range(4)
    ]
    found = analyse(rows, simulated.make_manifest([SETTINGS[0], SETTINGS[3]], 4)).settings[1]
    assert found.verdict is Verdict.faster
    assert "busy_cpu" in [doubt.code for doubt in found.doubts]


def test_below_three_shared_blocks_the_verdict_is_not_yet(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, rate + block)
        for axes, rate in ((SETTINGS[0], 1000.0), (SETTINGS[3], 3000.0))
        for block in range(2)
    ]
    findings = analyse(rows, simulated.make_manifest([SETTINGS[0], SETTINGS[3]], 2))
    assert findings.settings[1].verdict is Verdict.not_yet
    assert "a verdict requires 3 blocks that contain both sides, not 2" in findings.settings[1].verdict_reason
    assert findings.recommendation.choice is None


@pytest.mark.parametrize(("models", "shared"), [(("Xeon", "Xeon"), 2), (("Xeon", "EPYC"), 1)])
def test_two_hosts_with_one_block_each_have_no_verdict_yet(
    simulated: ModuleType, models: tuple[str, str], shared: int
) -> None:
    """Alike they are two repeats; otherwise each kind of hardware has one, and advice of its own."""
    rows = [
        simulated.make_run(
            axes,
            block,
            1000.0 * ratio,
            hardware={"host": model},
            environment={"before": {"host": f"node{block}", "machine": f"m{block}"}},
        )
        for block, model in enumerate(models)
        for axes, ratio in zip(SETTINGS, (1.0, 2.0, 3.0, 4.0), strict=True)
    ]
    findings = analyse(rows, simulated.make_manifest(SETTINGS, 2))
    others = [setting for setting in findings.settings if setting.verdict is not Verdict.baseline]
    assert {setting.verdict for setting in others} == {Verdict.not_yet}
    assert all(f"contain both sides, not {shared}" in setting.verdict_reason for setting in others)
    assert findings.recommendation.choice is None
    assert "--add-repeats" in (findings.recommendation.settle or "")


def test_undecided_settings_lead_to_the_command_that_settles_them(simulated: ModuleType) -> None:
    advice = _analysed(simulated, (1.0, 1.05, 1.04, 1.06), noise=20.0).recommendation
    assert advice.choice is None
    assert advice.headline == "Nothing is shown to be faster yet: 3 of 3 comparisons are undecided"
    assert advice.detail.startswith("Highest so far is batch 256, bf16-mixed: 1.06x [")
    assert "There are 5 repeats; " in advice.detail
    assert advice.certainty is Certainty.undecided
    assert advice.settle is not None
    assert "more repeats would settle it" in advice.sentence
    assert "`" not in advice.sentence
    command = shlex.split(advice.settle)
    assert command[:2] == ["accelsweep", "run"]
    assert "--add-repeats" in command
    assert int(command[-1]) >= 2


def test_no_more_repeats_than_twenty_are_advised(simulated: ModuleType) -> None:
    """Beyond that, quieter runs help more, and the sentence says how to get them. The number is the plan's."""
    advice = _analysed(simulated, (1.0, 1.05, 1.04, 1.06), noise=40.0).recommendation
    assert (advice.settle, advice.settle_minutes) == (None, None)
    assert "stop other work, lengthen the windows, or sweep fewer settings" in advice.sentence
    assert _added(_analysed(simulated, (1.0, 1.05, 1.04, 1.06), noise=40.0, repeats_most=100)) > 15


def test_advised_repeats_never_pass_the_most_even_by_one(simulated: ModuleType) -> None:
    """Two are the fewest that are worth a command, but not where only one is left."""
    ratios = (1.0, 1.05, 1.04, 1.06)
    assert [_added(_analysed(simulated, ratios, noise=12.0, repeats_most=most)) for most in (20, 7, 6)] == [10, 2, 1]
    unsure = [simulated.make_run(axes, 0, 1000.0 + index) for index, axes in enumerate(SETTINGS)]
    for room in (1, 0):
        manifest = _with_most(simulated.make_manifest(SETTINGS, 1), 1 + room)
        assert _added(analyse(unsure, manifest)) == room


def test_advised_repeats_come_with_the_minutes_that_the_runs_so_far_have_taken(simulated: ModuleType) -> None:
    """30 s for each run; a new block of four settings holds five, because the baseline is in it twice."""
    times = {"wall_seconds": 30}  # a whole number: simulated runs take floats for metrics
    found = _analysed(simulated, (1.0, 1.05, 1.04, 1.06), noise=20.0, times=times)
    assert found.recommendation.settle_minutes == _added(found) * 5 * 30 / 60
    assert _analysed(simulated, (1.0, 1.05, 1.04, 1.06), noise=20.0).recommendation.settle_minutes is None


def test_more_repeats_are_not_advised_where_they_would_not_help(simulated: ModuleType) -> None:
    advice = _analysed(simulated, (1.0, 1.02, 1.0 / 1.02, 1.02), noise=15.0).recommendation
    assert (advice.choice, advice.settle) == (None, None)
    assert "less noise would help more than extra repeats" in advice.sentence


def test_the_baseline_is_recommended_when_nothing_beats_it(simulated: ModuleType) -> None:
    advice = _analysed(simulated, (1.0, 0.5, 1.0005, 0.8)).recommendation
    assert advice.choice is not None
    assert advice.choice.setting == simulated.name_of(SETTINGS[0])
    assert advice.headline == "Stay with batch 32, 32-bit: nothing is faster"
    assert advice.certainty is Certainty.sure
    assert "None of the 3 other settings" in advice.sentence
    assert "2 % faster" in advice.sentence


@pytest.mark.parametrize(
    ("outcome", "headline", "settle"),
    [
        ("crashed", "all 12 runs crashed", "accelsweep runs simulated --outcome crashed"),
        ("out_of_memory", "all 12 runs ran out of memory", "accelsweep runs simulated --outcome out_of_memory"),
        ("not_run", "none of 12 runs has run", "accelsweep run experiment=simulated"),
    ],
)
def test_a_sweep_without_any_measurement_says_why_and_no_command_that_fails_again(
    simulated: ModuleType, outcome: str, headline: str, settle: str
) -> None:
    rows = [
        simulated.make_run(axes, block, None, outcome=outcome, reason="the reason")
        for axes in SETTINGS
        for block in range(3)
    ]
    advice = analyse(rows, simulated.make_manifest(SETTINGS, 3)).recommendation
    assert advice.choice is None
    assert advice.sentence == f"Nothing was measured: {headline}. The reason."
    assert advice.certainty is Certainty.no_answer
    assert advice.settle == settle


def test_several_reasons_are_counted_and_the_most_frequent_is_told(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, None, outcome="out_of_memory" if block == 0 else "crashed", reason=f"r{block}")
        for axes in SETTINGS
        for block in range(3)
    ]
    advice = analyse(rows, simulated.make_manifest(SETTINGS, 3)).recommendation
    assert advice.headline == "Nothing was measured: 8 runs crashed, 4 ran out of memory"
    assert advice.detail == "r0 (and 2 other reasons)."


def test_a_baseline_that_failed_leads_to_its_runs_and_its_reason(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, 1000.0 if index else None)
        for index, axes in enumerate(SETTINGS)
        for block in range(3)
    ]
    advice = analyse(rows, simulated.make_manifest(SETTINGS, 3)).recommendation
    assert advice.headline == "No speed-up can be given: the baseline was not measured"
    assert advice.detail == "Batch 32, 32-bit: 3 of 3 runs: crashed (RuntimeError: simulated)."
    assert advice.settle == "accelsweep runs simulated --outcome crashed"


def test_disturbed_runs_come_with_the_minutes_that_they_take(simulated: ModuleType) -> None:
    rows = [
        simulated.make_run(axes, block, rate + block, wall_seconds=30, doubts=BUSY if index and block < 4 else [])
        for index, (axes, rate) in enumerate(((SETTINGS[0], 1000.0), (SETTINGS[3], 2000.0)))
        for block in range(5)
    ]
    advice = analyse(rows, simulated.make_manifest([SETTINGS[0], SETTINGS[3]], 5)).recommendation
    assert advice.settle_purpose == "To measure the 4 disturbed runs again"
    assert advice.settle_minutes == 4 * 30 / 60


@pytest.mark.parametrize("disturbed", [True, False])
def test_open_comparisons_are_settled_by_measuring_disturbed_runs_again_rather_than_all_more_often(
    simulated: ModuleType, disturbed: bool
) -> None:
    rows = []
    for block, wobble in enumerate(WOBBLE):
        doubts = BUSY if disturbed and block == 0 else []
        rows.append(simulated.make_run(SETTINGS[0], block, 1000.0 * (1 + 40 * wobble), wall_seconds=30))
        rows.append(simulated.make_run(SETTINGS[1], block, 1100.0 * (1 - 40 * wobble), wall_seconds=30, doubts=doubts))
    advice = analyse(rows, simulated.make_manifest(SETTINGS[:2], 5)).recommendation
    assert advice.settle is not None
    if disturbed:
        assert advice.settle.startswith("accelsweep retry simulated --outcome disturbed && accelsweep run")
        assert (advice.settle_purpose, advice.settle_minutes) == ("To measure the disturbed run again", 0.5)
    else:
        assert "--add-repeats" in advice.settle


def test_a_faster_setting_that_loses_is_told_though_others_are_undecided(simulated: ModuleType) -> None:
    rows = []
    for block, wobble in enumerate(WOBBLE):
        rows.append(simulated.make_run(SETTINGS[0], block, 1000.0, quality=0.972))
        rows.append(simulated.make_run(SETTINGS[1], block, 1030.0 * (1 + 20 * wobble), quality=0.972 + wobble))
        rows.append(simulated.make_run(SETTINGS[2], block, 4000.0 + block, quality=0.916 + wobble))
    advice = analyse(rows, simulated.make_manifest(SETTINGS[:3], 5)).recommendation
    assert advice.headline == "Batch 256, 32-bit is 4.002x as fast, but accuracy falls from 0.972 to 0.916"
    assert advice.certainty is Certainty.none_recommended
    assert "1 of 2 comparisons are undecided" in advice.detail
    assert advice.choice is None
    assert advice.fastest.setting == simulated.name_of(SETTINGS[2])


def test_refused_comparisons_lead_to_no_recommendation(simulated: ModuleType) -> None:
    rows = [simulated.make_run(SETTINGS[0], block, 1000.0 + block) for block in range(3)]
    rows += [simulated.make_run(SETTINGS[1], block, 2e3 + block, software={"torch": "1.0"}) for block in range(3)]
    advice = analyse(rows, simulated.make_manifest(SETTINGS[:2], 3)).recommendation
    assert advice.choice is None
    assert "torch differs" in advice.sentence


def test_where_no_setting_can_run_the_first_reason_is_told_and_few_repeats_are_no_doubt(simulated: ModuleType) -> None:
    manifest = simulated.make_manifest(SETTINGS, 3)
    settings = tuple(
        setting.model_copy(update={"unsupported": "there is no cuda here"}) for setting in manifest.settings
    )
    plan = manifest.model_copy(update={"settings": settings, "blocks": (), "baseline": None})
    rows = [
        RunRow("s", setting.name, Outcome.unsupported, setting.axes, reason=setting.unsupported) for setting in settings
    ]
    findings = analyse(rows, plan)
    assert findings.recommendation.sentence == ("Nothing was measured: no setting can run here. There is no cuda here.")
    assert findings.recommendation.settle == "accelsweep doctor"
    assert findings.doubts == ()


def test_the_command_names_the_slurm_profile_where_the_site_submits_to_slurm(simulated: ModuleType) -> None:
    """Without it `run` refuses the site."""
    rows = [simulated.make_run(axes, 0, 1000.0 + index) for index, axes in enumerate(SETTINGS)]
    manifest = simulated.make_manifest(SETTINGS, 1).model_copy(update={"site": Site(name="mine", scheduler="slurm")})
    findings = analyse(rows, manifest)
    assert findings.command == "accelsweep run experiment=simulated --profile slurm"
    assert findings.recommendation.settle == f"{findings.command} --add-repeats 5"
    ours = analyse(rows, manifest.model_copy(update={"profile": "ours/slurm profile"}))
    assert ours.command == "accelsweep run experiment=simulated --profile 'ours/slurm profile'"


LONG = {"accelerator": "cpu", "devices": 2, "precision": "32-true", "batch_size": 64} | {
    f"model.key{number}": number for number in range(20)
}


def finding(simulated: ModuleType, axes: dict[str, object]) -> SettingFinding:
    """Return the finding of one setting with these axes."""
    rows = [simulated.make_run(axes, block, 1000.0 + block) for block in range(3)]
    return analyse(rows, simulated.make_manifest([axes], 3)).settings[0]


def sped_up(setting: SettingFinding, value: float, low: float, high: float) -> SettingFinding:
    ratio = Estimate(value=value, low=low, high=high, unit="1", confidence=0.95, count=3)
    return setting.model_copy(update={"speedup": Speedup(ratio=ratio, paired=True)})


def test_a_name_of_many_axes_is_cut_to_what_fits_and_says_so(simulated: ModuleType) -> None:
    setting = sped_up(finding(simulated, LONG), 2.1, 2.0, 2.2)
    words = gain_headline(setting, None)
    assert words.startswith("batch 64, 32-bit, 2 processes, key0=0, key1=1")
    assert words.endswith(" and 17 more is 2.1x as fast")
    assert len(words.removesuffix(" is 2.1x as fast").partition(" and ")[0].split()) <= MOST_WORDS


def test_a_long_name_is_told_by_what_differs_from_the_baseline(simulated: ModuleType) -> None:
    other = finding(simulated, LONG | {"batch_size": 32})
    assert headline_name(finding(simulated, LONG), other) == "batch 64"


def test_an_interval_that_says_nothing_gives_no_number(simulated: ModuleType) -> None:
    setting = sped_up(finding(simulated, {"batch_size": 64}), 30.0, 2.9, 327.0)
    assert gain_headline(setting, None) == "batch 64 is faster, by an unknown factor"


AXES = ({"batch_size": 32}, {"batch_size": 64})
PRICES = Prices.model_validate({"devices": {"16 vCPU": 0.533, "Tesla K80": 0.967}})
CPU_HOURS, GPU_HOURS = 97.18, 9.06


@pytest.fixture
def together(simulated: ModuleType):
    """One sweep on a machine of 16 vCPU and one on a K80; the hours of a result are those of DAWNBench's pair."""

    def build(noise: float = 0.001, gpu_hours: float = GPU_HOURS, **fields: Any) -> Findings:
        machines = (("cpu", "16 vCPU", CPU_HOURS), ("cuda", "Tesla K80", gpu_hours))
        return analyse_together("a+b", [part(*machine, noise, **fields) for machine in machines])

    def part(accelerator: str, model: str, hours: float, noise: float, prices: Prices = PRICES) -> Part:
        def metrics(block: int) -> dict[str, Any]:
            took = hours * (1 + noise * (block - 1))
            seconds = {"value": took * 3600.0, "unit": "s"}
            return {
                "samples_per_second": {"value": 1000.0 / took, "unit": "1/s"},
                "time_to_target_seconds": seconds,
                "results_per_hour": {"value": 1.0 / took, "unit": "results/h"},
            }

        effective = {"device_names": [model], "accelerator": accelerator, "world_size": 1}
        rows = [
            simulated.make_run(
                axes, block, 1.0, metrics=metrics(block), effective=effective, hardware={"host": model},
                config={"task": "time_to_accuracy", "accelerator": accelerator},
            )
            for block in range(3)
            for axes in AXES
        ]  # fmt: skip
        plan = simulated.make_manifest(list(AXES), 3)
        options = plan.options.model_copy(update={"prices": prices})
        return Part(accelerator, rows, plan.model_copy(update={"sweep": accelerator, "options": options}))

    return build


def test_dawnbenchs_pair_is_advised_by_the_cost_of_a_result(together) -> None:
    """51.80 USD on 16 vCPU, 8.76 USD on a K80: 5.9 times as much."""
    advice = together().recommendation
    assert advice.choice is not None
    assert advice.choice.hardware == "Tesla K80"
    assert advice.certainty is Certainty.sure
    assert advice.headline.endswith(" on Tesla K80 gives the cheapest result")
    assert "On Tesla K80 a result costs 8.76" in advice.sentence
    assert "On 16 vCPU (batch 32) it costs 51.8 USD" in advice.sentence
    assert "5.9x as much" in advice.sentence
    assert [one.title for one in advice.alternatives] == ["On 16 vCPU", "On Tesla K80"]
    assert advice.alternatives_title == "On each kind of hardware"


def test_the_faster_machine_is_not_preferred_where_its_result_costs_more(together) -> None:
    advice = together(gpu_hours=60.0).recommendation
    assert advice.choice.hardware == "16 vCPU"
    assert "58" in advice.sentence


def test_costs_whose_intervals_overlap_leave_the_cheapest_open(together) -> None:
    advice = together(noise=0.3, gpu_hours=45.0).recommendation
    assert advice.certainty is Certainty.among_the_best
    assert "may give the cheapest result" in advice.headline
    assert "overlap" in advice.sentence


def test_without_prices_none_is_preferred_and_what_is_missing_is_said(together) -> None:
    advice = together(prices=Prices()).recommendation
    assert advice.choice is None
    assert "train to a target, combined with prices" in advice.sentence


TWO_SETTINGS = [{"batch_size": 32}, {"batch_size": 64}, {"batch_size": 128}]


def _seconds(simulated: ModuleType, *ends: str) -> float | None:
    """Simulated blocks begin at 9:00, 9:01, ...; each has three runs of 10 s and ends at its time."""
    manifest = simulated.make_manifest(TWO_SETTINGS, len(ends))
    groups = []
    for planned, axes in zip(manifest.settings, TWO_SETTINGS, strict=True):
        runs = [
            simulated.make_run(axes, block, 1000.0, wall_seconds=10, finished_at=f"2026-01-05T{end}+00:00")
            for block, end in enumerate(ends)
        ]
        groups.append(SettingRuns(planned, runs[0].hardware, tuple(runs)))
    return block_seconds(groups, manifest)


def test_the_runs_count_each_and_the_baseline_as_often_as_a_new_block_holds_it(simulated: ModuleType) -> None:
    assert _seconds(simulated, "09:00:31") == 4 * 10


def test_the_start_of_a_block_is_the_shortest_pause_between_two(simulated: ModuleType) -> None:
    """The sweep rested before the third block; that is no start."""
    assert _seconds(simulated, "09:00:52", "09:01:10", "09:02:31") == 4 * 10 + 8


def test_blocks_that_overlap_have_no_pause(simulated: ModuleType) -> None:
    """As where a cluster measures several at a time."""
    assert _seconds(simulated, "09:01:20", "09:02:20", "09:03:20") == 4 * 10
