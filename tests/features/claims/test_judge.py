"""Verdicts on claims: agrees, more, less, undecided, or not testable here with the reason. None is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.collect import collect
from accelsweep.features.claims.model import Claim, Claims, ClaimsOptions, ClaimVerdict, factors
from accelsweep.planning.plan import make_plan, write_plan

SMALL, LARGE = {"accelerator": "cpu", "batch_size": 8}, {"accelerator": "cpu", "batch_size": 64}
GPU = {"accelerator": "cuda", "batch_size": 64}


def claim(**figure: Any) -> Claim:
    """A batch of 64 is three times as fast as one of 8."""
    stated = {"claimed": 3.0, "setting": LARGE, "against": {"batch_size": 8}}
    return make_claim(stated | figure)


def make_claim(*figures: dict[str, Any], **changes: Any) -> Claim:
    stated: dict[str, Any] = {
        "id": "batch_size",
        "statement": "batches of 8 take 3x the time of batches of 64",
        "source": "a forum",
        "differs": ["that was another network"],
        "figures": figures,
    }
    return Claim.model_validate(stated | changes)


@pytest.fixture
def judged():
    """Judge one claim on a sweep whose larger batch is `ratio` times as fast, with `noise` between its three blocks."""

    def judge(stated: Claim, ratio: float = 3.0, noise: float = 0.001, blocks: int = 3, **fields: Any) -> Any:
        rows = []
        for block in range(blocks):
            rows.append(make_run(SMALL, block, 100.0, **fields))
            rows.append(make_run(LARGE, block, 100.0 * ratio * (1 + noise * (block - 1)), **fields))
        manifest = make_manifest([SMALL, LARGE, GPU], blocks)
        settings = (
            *manifest.settings[:2],
            manifest.settings[2].model_copy(update={"unsupported": "there is no cuda here"}),
        )
        options = manifest.options.model_copy(
            update={"report": ClaimsOptions(claims=(stated,)).model_dump(mode="json")}
        )
        plan = manifest.model_copy(update={"settings": settings, "options": options})
        findings = analyse(rows, plan).section(Claims).figures
        return findings[0] if len(findings) == 1 else findings

    return judge


BUSY = [{"code": "busy_cpu", "message": "other processes kept 1.33 of 2 cores busy", "remedy": "stop them"}]


def test_a_claim_measured_on_a_busy_machine_is_disturbed(judged):
    found = judged(claim(), doubts=BUSY)
    assert found.verdict is ClaimVerdict.disturbed
    assert found.reason == "3 of 3 runs: other processes kept 1.33 of 2 cores busy"
    assert found.measured.value == pytest.approx(3.0, rel=0.01)


def test_a_metric_that_is_not_timed_keeps_its_verdict_on_a_busy_machine(judged):
    quiet, busy = (judged(claim(metric="quality"), quality=0.9, doubts=doubts) for doubts in ([], BUSY))
    assert busy.measured == quiet.measured
    assert busy.verdict is quiet.verdict is not ClaimVerdict.disturbed


def test_a_ratio_over_fewer_than_three_blocks_is_undecided(judged):
    found = judged(claim(), noise=1e-6, blocks=2)
    assert found.verdict is ClaimVerdict.undecided
    assert found.reason == "a verdict needs 3 blocks that contain both sides, and there are 2"


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (3.0, 0.001, ClaimVerdict.agrees),
        (3.2, 0.001, ClaimVerdict.agrees),
        (4.0, 0.001, ClaimVerdict.more),
        (1.1, 0.001, ClaimVerdict.less),
        (3.0, 0.3, ClaimVerdict.undecided),
        (3.3, 0.01, ClaimVerdict.undecided),
    ],
)
def test_a_claim_agrees_only_if_the_whole_interval_is_within_its_tolerance(judged, ratio, noise, verdict) -> None:
    finding = judged(claim(), ratio, noise)
    assert finding.verdict is verdict
    assert finding.measured is not None
    assert finding.measured.value == pytest.approx(ratio, rel=0.05)
    assert finding.labels == ("batch 64, CPU", "batch 8, CPU")


def test_a_finding_carries_the_reasons_to_differ_and_the_source(judged) -> None:
    finding = judged(claim())
    assert (finding.differs, finding.source) == (("that was another network",), "a forum")


def test_any_metric_can_be_claimed(judged) -> None:
    same = judged(claim(metric="host_pss_bytes", claimed=1.0), host_pss_bytes=5e8)
    assert same.verdict is not ClaimVerdict.not_testable
    absent = judged(claim(metric="mfu"))
    assert (absent.verdict, absent.measured) == (ClaimVerdict.not_testable, None)
    assert absent.reason == "accelerator=cpu, batch_size=64: mfu was not measured"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"accelerator": "cuda"}, "accelerator=cuda: unsupported: there is no cuda here"),
        ({"accelerator": "mps"}, "no setting of this sweep has accelerator=mps"),
        ({"accelerator": "cpu"}, "2 settings of this sweep have accelerator=cpu; the claim must select one"),
    ],
)
def test_a_claim_that_cannot_be_tested_here_has_the_reason(judged, setting, reason) -> None:
    finding = judged(claim(setting=setting))
    assert (finding.verdict, finding.reason) == (ClaimVerdict.not_testable, reason)
    assert finding.measured is None


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"accelerator": "mps", "batch_size": 64}, "accelerator=mps, batch_size=64: unsupported: "),
        ({"accelerator": "mps", "batch_size": 65}, "no setting of this sweep has accelerator=mps, batch_size=65"),
        ({"batch_size": 64}, "2 settings of this sweep have batch_size=64; the claim must select one"),
        ({"accelerator": "cpu", "batch_size": 64}, "accelerator=cpu, batch_size=64: it has not run yet"),
    ],
)
def test_an_unsupported_setting_is_selected_by_config_values_too(tmp_path, setting, reason) -> None:
    """`batch_size` is no axis, and the plan has no config of an unsupported setting."""
    assert _planned(tmp_path, ["accelerator=cpu,mps", "batch_size=64"], setting).startswith(reason)


def test_without_supported_settings_one_that_may_match_gives_the_reason(tmp_path) -> None:
    reason = _planned(tmp_path, ["accelerator=mps", "batch_size=64"], {"batch_size": 64})
    assert reason.startswith("no setting of this sweep is known to have batch_size=64; 1 setting may: unsupported: ")


def _planned(home: Path, overrides: list[str], setting: dict[str, Any]) -> str:
    """Return the reason of a figure of this setting where nothing has run yet, on a site without MPS."""
    plan = make_plan(home, [*overrides, "site=gpu_node"])
    stated = make_claim({"claimed": 1.0, "unit": "1/s", "setting": setting})
    options = plan.manifest.options.model_copy(
        update={"report": ClaimsOptions(claims=(stated,)).model_dump(mode="json")}
    )
    (finding,) = (
        analyse(collect(write_plan(home, plan)), plan.manifest.model_copy(update={"options": options}))
        .section(Claims)
        .figures
    )
    assert finding.measured is None
    return finding.reason


def test_a_claim_on_failed_runs_states_how_they_failed(judged) -> None:
    finding = judged(
        claim(setting={"accelerator": "cpu", "batch_size": 64}), outcome="crashed", reason="RuntimeError: x"
    )
    assert finding.verdict is ClaimVerdict.not_testable
    assert "3 of 3 runs: crashed (RuntimeError: x)" in finding.reason


def test_settings_that_differ_in_other_fields_are_not_compared() -> None:
    rows = [make_run(SMALL, block, 100.0) for block in range(3)]
    rows += [make_run(LARGE, block, 300.0, software={"torch": "2.12.0"}) for block in range(3)]
    manifest = make_manifest([SMALL, LARGE], 3)
    options = manifest.options.model_copy(update={"report": ClaimsOptions(claims=(claim(),)).model_dump(mode="json")})
    (finding,) = analyse(rows, manifest.model_copy(update={"options": options})).section(Claims).figures
    assert finding.verdict is ClaimVerdict.not_testable
    assert finding.reason.startswith("torch differs: 2.12.0")


@pytest.mark.parametrize(
    ("claimed", "ratio", "verdict"),
    [
        ("at least 3", 3.1, ClaimVerdict.agrees),
        ("at least 3", 2.99, ClaimVerdict.agrees),
        ("at least 3", 2.8, ClaimVerdict.less),
        ("more than 3", 3.1, ClaimVerdict.agrees),
        ("more than 3", 3.03, ClaimVerdict.less),
        ("at most 3", 3.03, ClaimVerdict.agrees),
        ("at most 3", 3.3, ClaimVerdict.more),
        ("less than 3", 2.99, ClaimVerdict.more),
        ("less than 3", 2.8, ClaimVerdict.agrees),
        ("2 to 4", 3.0, ClaimVerdict.agrees),
        ("2 to 4", 4.3, ClaimVerdict.agrees),
        ("2 to 4", 5.0, ClaimVerdict.more),
        ("2 to 4", 1.5, ClaimVerdict.less),
        (None, 1.5, ClaimVerdict.measured),
    ],
)
def test_an_inclusive_bound_has_a_tolerance_and_an_exclusive_one_must_be_exceeded_by_it(
    judged, claimed, ratio, verdict
) -> None:
    assert judged(claim(claimed=claimed), ratio, noise=0.0005).verdict is verdict


def test_a_bound_inside_the_interval_is_undecided(judged) -> None:
    assert judged(claim(claimed="more than 1"), 1.02, noise=0.01).verdict is ClaimVerdict.undecided


def test_an_expression_multiplies_and_divides_metrics_and_numbers(judged) -> None:
    """Both batches took the same joules, so twice the samples are twice the samples per joule."""
    finding = judged(
        claim(metric="2 * samples_per_second / energy_joules", claimed=2.0), 2.0, energy_joules=50.0, host_pss_bytes=5e8
    )
    assert (finding.verdict, finding.measured.value) == (ClaimVerdict.agrees, pytest.approx(2.0, rel=0.01))
    (absolute,) = [judged(claim(metric="1e6 / samples_per_second", against=None, unit="s", claimed=3333.0), 3.0)]
    assert (absolute.verdict, absolute.claimed, absolute.against) == (ClaimVerdict.agrees, "3,333 s", None)
    assert absolute.measured.value == pytest.approx(1e6 / 300.0, rel=0.001)
    assert absolute.measured.unit == "s"


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a", [("a", 1)]),
        ("a / b", [("a", 1), ("b", -1)]),
        ("1e6 * logged.val_loss / b / 2", [(1e6, 1), ("logged.val_loss", 1), ("b", -1), (2.0, -1)]),
    ],
)
def test_an_expression_is_parsed_into_factors(expression, parts) -> None:
    assert list(factors(expression)) == parts


def test_an_unmeasured_metric_of_an_expression_is_named(judged) -> None:
    finding = judged(claim(metric="samples_per_second / energy_joules"))
    assert finding.reason == "accelerator=cpu, batch_size=64: energy_joules was not measured"


def test_a_claim_may_have_several_figures_and_an_analogue_and_none_is_dropped(judged) -> None:
    figure = {"claimed": 3.0, "setting": LARGE, "against": SMALL}
    gpu = {"claimed": 13.76, "setting": GPU, "against": SMALL}
    stated = make_claim({**figure, "name": "rate"}, gpu, analogue={"says": "a batch of 64", "figures": [figure]})
    found = judged(stated)
    assert [(one.figure, one.analogue, str(one.verdict)) for one in found] == [
        ("rate", None, "agrees"),
        (None, None, "not testable here"),
        (None, "a batch of 64", "agrees"),
    ]


def test_unsupported_figures_widen_no_interval(judged) -> None:
    figure = {"claimed": 3.0, "setting": LARGE, "against": SMALL}
    assert judged(make_claim(figure)).measured.confidence == pytest.approx(0.95)
    with_gpu = judged(make_claim(figure, {"claimed": 13.76, "setting": GPU, "against": SMALL}))
    assert with_gpu[0].measured.confidence == pytest.approx(0.95)
    assert judged(make_claim(figure, figure))[0].measured.confidence == pytest.approx(0.975)


def test_a_claim_whose_runs_are_pending_is_not_run_rather_than_untestable(judged) -> None:
    finding = judged(claim(), outcome="not_run", reason="it has not run yet")
    assert (finding.verdict, finding.reason) == (
        ClaimVerdict.not_run,
        "accelerator=cpu, batch_size=64: it has not run yet",
    )


def test_a_pending_setting_is_selected_by_its_config_without_an_axis(tmp_path) -> None:
    """`accelerator=cuda` leaves one accelerator, so the setting's config alone tells which; it counts in the family."""
    plan = make_plan(tmp_path, ["experiment=claims/vgg16", "accelerator=cuda", "site=gpu_node"])
    folder = write_plan(tmp_path, plan)
    found = {
        one.figure: one
        for one in analyse(collect(folder), plan.manifest).section(Claims).figures
        if one.analogue is None
    }
    epoch = found["an epoch of ImageNet on a GPU"]
    assert (epoch.verdict, epoch.reason) == (
        ClaimVerdict.not_run,
        "accelerator=cuda: it has not run yet; the same command measures it",
    )
    assert found["parameters"].reason == "no setting of this sweep has accelerator=cpu, threads=null"


def test_equal_counts_have_an_interval_without_width() -> None:
    counted = {"parameters": {"value": 138.4e6, "unit": "parameters", "provenance": "counted"}}
    timed = {"parameters": {"value": 138.4e6, "unit": "parameters", "provenance": "clock"}}
    stated = make_claim({"claimed": 140e6, "metric": "parameters", "unit": "parameters", "setting": SMALL})
    for metrics, verdict in ((counted, ClaimVerdict.agrees), (timed, ClaimVerdict.undecided)):
        rate = {"samples_per_second": {"value": 100.0, "unit": "1/s"}}
        rows = [make_run(SMALL, block, 100.0, metrics=metrics | rate) for block in range(3)]
        manifest = make_manifest([SMALL, LARGE], 3)
        options = manifest.options.model_copy(
            update={"report": ClaimsOptions(claims=(stated,)).model_dump(mode="json")}
        )
        plan = manifest.model_copy(update={"options": options})
        (finding,) = analyse(rows, plan).section(Claims).figures
        assert (finding.verdict, finding.claimed) == (verdict, "140,000,000 parameters")


@pytest.mark.parametrize(
    ("diverged", "claimed", "verdict", "low", "high"),
    [
        (0, 1.0, ClaimVerdict.less, 0.0, 0.7076),
        (3, 1.0, ClaimVerdict.undecided, 0.2924, 1.0),
        (0, "more than 0.75", ClaimVerdict.less, 0.0, 0.7076),
        (3, "more than 0.25", ClaimVerdict.agrees, 0.2924, 1.0),
    ],
)
def test_the_share_of_diverged_runs_has_an_exact_interval(diverged, claimed, verdict, low, high) -> None:
    """Clopper and Pearson's interval of 0 of 3 reaches to 1 - 0.025 ** (1 / 3) = 0.7076."""
    stated = make_claim({"claimed": claimed, "metric": "outcome.diverged", "unit": "of the runs", "setting": SMALL})
    lost = {"outcome": "diverged", "reason": "the loss is NaN"}
    rows = [
        make_run(SMALL, block, 100.0, run=f"second-r{block + second}", **(lost if block < diverged else {}))
        for block in range(3)
        for second in (0, 3)  # two runs of a block share a seed and count once
    ]
    rows += [make_run(LARGE, block, 300.0) for block in range(3)]
    manifest = make_manifest([LARGE, SMALL], 3)
    options = manifest.options.model_copy(update={"report": ClaimsOptions(claims=(stated,)).model_dump(mode="json")})
    (finding,) = analyse(rows, manifest.model_copy(update={"options": options})).section(Claims).figures
    assert (finding.measured.value, finding.verdict) == (diverged / 3, verdict)
    assert (finding.measured.low, finding.measured.high) == pytest.approx((low, high), abs=1e-4)


def test_the_doubts_of_the_compared_runs_travel_with_the_claim_each_once(judged) -> None:
    busy = {"code": "busy_cpu", "message": "others used the CPU", "remedy": "stop them"}
    assert [doubt.code for doubt in judged(claim(), doubts=[busy]).doubts] == ["busy_cpu"]
    assert judged(claim()).doubts == ()


SERVED, SERVED_FAST, TRAINED, TRAINED_FAST = ({"accelerator": "cpu", "batch_size": size} for size in (1, 2, 3, 4))
GAINS_LESS = {
    "claimed": "less than 1",
    "setting": SERVED_FAST,
    "against": SERVED,
    "over": {"setting": TRAINED_FAST, "against": TRAINED},
}


@pytest.fixture
def gains():
    """Judge a ratio of ratios: serving gains `served`, training 5x; blocks differ by a tenth, which cancels out."""

    def judge(served: float, blocks: int = 3, apart: bool = False, **figure: Any) -> Any:
        settings = [SERVED, SERVED_FAST, TRAINED, TRAINED_FAST]
        rows = []
        for block in range(blocks):
            noise = 1 + 0.001 * (block - 1)
            for axes, gain in zip(settings, (1.0, served * noise, 1.0, 5.0), strict=True):
                later = blocks * (apart and axes in (TRAINED, TRAINED_FAST))
                rows.append(make_run(axes, block + later, 100.0 * gain * (1 + 0.1 * block)))
        manifest = make_manifest(settings, 2 * blocks if apart else blocks)
        report = ClaimsOptions(claims=(make_claim(GAINS_LESS | figure),)).model_dump(mode="json")
        options = manifest.options.model_copy(update={"report": report})
        (finding,) = analyse(rows, manifest.model_copy(update={"options": options})).section(Claims).figures
        return finding

    return judge


def test_a_ratio_of_ratios_is_judged_by_its_own_interval(gains):
    found = gains(served=2.0)
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(0.4, rel=0.001)
    assert found.measured.low < 0.4 < found.measured.high < 0.41
    assert len(found.labels) == 4
    assert gains(served=6.0).verdict is ClaimVerdict.more


def test_a_ratio_of_ratios_needs_blocks_with_all_four_settings(gains):
    apart = gains(served=2.0, apart=True)
    assert (apart.verdict, apart.measured) == (ClaimVerdict.not_testable, None)
    assert apart.reason == "no block contains all four settings of the two ratios"
    assert gains(served=2.0, blocks=2).verdict is ClaimVerdict.undecided


def test_a_missing_side_of_the_second_ratio_is_named(gains):
    found = gains(served=2.0, over={"setting": TRAINED_FAST, "against": {"batch_size": 77}})
    assert found.verdict is ClaimVerdict.not_testable
    assert "batch_size=77" in found.reason


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        ({"over": {"setting": TRAINED, "unit": "s"}}, "both need `against`"),
        ({"over": {**GAINS_LESS["over"], "claimed": 2}}, "cannot have `claimed`"),
    ],
)
def test_the_figure_below_over_is_a_ratio_without_a_claim(figure, words):
    with pytest.raises(ValueError, match=words):
        make_claim(GAINS_LESS | figure)
