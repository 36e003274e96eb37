"""Composite figures of claims: over workloads, over and between sweeps, projected onto a board, and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from resnet50 import RESNET50
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import Analysis, analyse
from accelsweep.analysis.run_results import SettingRuns, group_runs
from accelsweep.config.prices import Prices
from accelsweep.features.claims.cross_sweep import judge_section
from accelsweep.features.claims.model import Claim, ClaimFigure, ClaimFinding, Claims, ClaimsOptions, ClaimVerdict

RATIOS = {"small": 10.0, "medium": 20.0, "large": 40.0}
OVER = {"claimed": 20, "mean_over": "workload", "setting": {"accelerator": "cuda"}, "against": {"accelerator": "cpu"}}
ONTO = {"claimed": 20, "projected": "l4", "setting": {"accelerator": "cpu"}, "against": {"accelerator": "cpu"}}


def judge(
    figure: Mapping[str, Any],
    ratios: Mapping[str, float] = RATIOS,
    others: Mapping[str, Sequence[SettingRuns]] | None = None,
    prices: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ClaimFinding:
    """Judge a figure on a sweep of three workloads on a CPU of 2 samples a second and a GPU of `ratios` times that."""
    settings = [{"accelerator": device, "workload": name} for name in ratios for device in ("cpu", "cuda")]
    manifest = make_manifest(settings, 3)
    claim = {"id": "wide", "statement": "a GPU is fast", "source": "a forum", "figures": [figure]}
    report = ClaimsOptions.model_validate({"claims": [claim]}).model_dump(mode="json")
    options = manifest.options.model_copy(
        update={"report": report, "prices": Prices.model_validate(prices or {"devices": {"l4": 0.8}})}
    )
    runs = rows(settings, ratios, **fields)
    found = judge_section(Analysis.of(runs, manifest.model_copy(update={"options": options})), others or {})
    assert found is not None
    return found.figures[0]


def rows(settings: Sequence[Mapping[str, str]], ratios: Mapping[str, float], **fields: Any) -> Any:
    """Return three blocks of runs with ResNet-50's counts, at a batch of 256."""
    return [
        replace(
            make_run(
                axes,
                block,
                2.0 * (ratios[axes["workload"]] if axes["accelerator"] == "cuda" else 1.0) * (1 + block / 1e4),
                effective={"batch_size": 256},
                **fields,
            ),
            traits=RESNET50,
        )
        for block in range(3)
        for axes in settings
    ]


def test_a_figure_over_workloads_is_a_geometric_mean_with_an_interval_over_workloads() -> None:
    """10, 20 and 40: the mean is 20. t's quantile of two degrees of freedom leaves 20 x / 5.6."""
    found = judge(OVER)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(20, rel=1e-6)
    assert found.measured.low == pytest.approx(20 / math.exp(4.3027 * math.log(2) / math.sqrt(3)), rel=1e-3)
    assert found.measured.count == 3, "workloads, not runs"
    assert found.verdict is ClaimVerdict.undecided
    assert found.labels == ("geometric mean over 3 workloads",)


def test_two_workloads_are_too_few() -> None:
    found = judge(OVER, {"small": 10.0, "large": 40.0})
    assert found.verdict is ClaimVerdict.not_testable
    assert found.measured is None


def test_a_figure_over_sweeps_takes_one_value_from_each() -> None:
    others = {}
    for name, ratio in RATIOS.items():
        settings = [{"accelerator": device, "workload": name} for device in ("cpu", "cuda")]
        others[name] = group_runs(make_manifest(settings, 3), rows(settings, {name: ratio}))
    sweeps = {**OVER, "mean_over": None, "sweeps": ["small", "medium", "large"]}
    found = judge(sweeps, others=others)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(20, rel=1e-6)
    assert found.labels == ("geometric mean over 3 sweeps",)
    absent = judge(sweeps, others={"small": others["small"]})
    assert absent.verdict is ClaimVerdict.not_testable
    assert "medium: there is no such sweep here; large: there is no such sweep here" in absent.reason


def test_a_projected_figure_has_no_measured_value() -> None:
    found = judge({**ONTO, "setting": CPU, "against": CPU})
    assert found.measured is None
    assert found.projected is not None
    assert found.projected.low < found.projected.value < found.projected.high
    assert found.verdict_text.startswith("projected: ")
    assert found.board == "l4"
    assert judge({**ONTO, "claimed": None, "setting": CPU, "against": CPU}).verdict_text == (
        "projected: no figure claimed"
    )


CPU = {"accelerator": "cpu", "workload": "small"}


def test_the_error_of_the_device_does_not_average_out_over_workloads() -> None:
    """Three equal workloads on one board: the interval stays that of one of them."""
    one = judge({**ONTO, "setting": CPU, "against": CPU}).projected
    three = judge({**ONTO, "mean_over": "workload"}).projected
    assert one is not None
    assert three is not None
    assert three.high / three.low == pytest.approx(one.high / one.low, rel=0.1)


def test_cost_is_projected_with_a_price_and_refused_without() -> None:
    money = {
        "metric": "usd_per_million_samples",
        "unit": "USD",
        "projected": "l4",
        "setting": CPU,
        "claimed": "at most 9",
    }
    found = judge(money).projected
    rate = judge({**money, "metric": "samples_per_second", "unit": "1/s"}).projected
    assert found is not None
    assert rate is not None
    assert found.value == pytest.approx(0.8 / 3600 * 1e6 / rate.value, rel=0.06)
    without = judge(money, prices={"devices": {"cpu": 0.5}})
    assert without.verdict is ClaimVerdict.not_testable
    assert "no price is given for the L4" in without.reason
    other = judge({**money, "metric": "energy_joules", "unit": "J"}, energy_joules=3.0)
    assert "energy_joules is not projected" in other.reason


def test_a_ratio_to_a_disturbed_rate_is_not_projected() -> None:
    busy = [{"code": "busy_cpu", "message": "others were there", "remedy": "stop them"}]
    found = judge({**ONTO, "setting": CPU, "against": CPU}, doubts=busy)
    assert found.verdict is ClaimVerdict.disturbed
    assert found.projected is None


def test_a_projection_whose_runs_are_pending_is_not_run() -> None:
    found = judge({**ONTO, "setting": CPU, "against": CPU}, outcome="not_run", reason="nobody has started it")
    assert found.verdict is ClaimVerdict.not_run
    assert found.verdict_text == "not run"


def test_a_figure_is_over_one_thing_only() -> None:
    with pytest.raises(ValidationError, match="leave out `mean_over` or `sweeps`"):
        ClaimFigure.model_validate({**OVER, "sweeps": ["a"]})
    with pytest.raises(ValidationError, match="no `mean_over`, `sweeps` or `projected`"):
        ClaimFigure.model_validate({"metric": "outcome.diverged", "unit": "1", "setting": CPU, "mean_over": "workload"})


ONE, TWO = {"num_nodes": 1}, {"num_nodes": 2}
BETWEEN = {"claimed": 1, "tolerance": 0.02, "between": ["slurm", "here"], "setting": ONE, "against": ONE}
NOISE = (0.0, 0.001, -0.001)


def groups_of(rates: dict[int, float], blocks: int = 3, **fields: Any) -> list[SettingRuns]:
    settings = [{"num_nodes": nodes} for nodes in rates]
    runs = [
        make_run(axes, block, rates[axes["num_nodes"]] * (1 + NOISE[block] * axes["num_nodes"]), **fields)
        for axes in settings
        for block in range(blocks)
    ]
    return group_runs(make_manifest(settings, blocks), runs)


def judge_between(figure: dict[str, Any], **others: list[SettingRuns]) -> ClaimFinding:
    claim = {"id": "cluster", "statement": "use clusters", "source": "a forum", "figures": [figure]}
    manifest = make_manifest([ONE], 1)
    report = ClaimsOptions.model_validate({"claims": [claim]}).model_dump(mode="json")
    manifest = manifest.model_copy(update={"options": manifest.options.model_copy(update={"report": report})})
    found = judge_section(Analysis.of([], manifest), others or {})
    assert found is not None
    return found.figures[0]


def test_equal_rates_in_two_sweeps_agree_by_welchs_interval() -> None:
    found = judge_between(BETWEEN, slurm=groups_of({1: 500.0}), here=groups_of({1: 501.0}))
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(500 / 501, rel=1e-5)
    assert 0.98 < found.measured.low < found.measured.value < found.measured.high < 1.02


def test_blocks_of_two_sweeps_are_never_paired() -> None:
    """Both sides rise and fall together; paired, the interval would have no width."""
    found = judge_between(BETWEEN, slurm=groups_of({1: 500.0}), here=groups_of({1: 500.0}))
    assert found.measured.high / found.measured.low > 1.003


def test_another_rate_is_less_than_claimed() -> None:
    found = judge_between(BETWEEN, slurm=groups_of({1: 400.0}), here=groups_of({1: 500.0}))
    assert found.verdict is ClaimVerdict.less


def test_both_sides_in_one_sweep_are_paired_there() -> None:
    figure = {"claimed": "more than 1", "between": ["slurm", "slurm"], "setting": TWO, "against": ONE}
    found = judge_between(figure, slurm=groups_of({1: 500.0, 2: 900.0}))
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(1.8, rel=1e-3)


def test_a_missing_sweep_is_named_with_a_remedy() -> None:
    found = judge_between(BETWEEN, here=groups_of({1: 500.0}))
    assert found.verdict is ClaimVerdict.not_testable
    assert "there is no sweep slurm here" in found.reason
    assert "--name slurm" in found.reason


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"software": {"torch": "2.12.1"}}, "torch differs"),
        ({"environment": {"before": {"machine": "b"}}}, "the machine differs"),
        ({"config": {"threads": 4}}, "threads differs"),
    ],
)
def test_sweeps_that_differ_are_refused_with_both_values(fields: dict[str, Any], why: str) -> None:
    here = groups_of({1: 500.0}, environment={"before": {"machine": "a"}})
    slurm = groups_of({1: 500.0}, **{"environment": {"before": {"machine": "a"}}} | fields)
    found = judge_between(BETWEEN, slurm=slurm, here=here)
    assert found.verdict is ClaimVerdict.not_testable
    assert why in found.reason


def test_two_blocks_per_sweep_are_too_few() -> None:
    found = judge_between(BETWEEN, slurm=groups_of({1: 500.0}, 2), here=groups_of({1: 500.0}))
    assert found.verdict is ClaimVerdict.undecided
    assert "3 blocks of each side" in found.reason


@pytest.mark.parametrize(
    "changes", [{"against": None, "unit": "s"}, {"sweeps": ["a", "b", "c"]}, {"projected": "l4"}, {"mean_over": "x"}]
)
def test_a_figure_between_sweeps_is_a_plain_ratio(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="between"):
        ClaimFigure.model_validate({**BETWEEN, **changes})


ON_CPU, ON_GPU = {"accelerator": "cpu"}, {"accelerator": "cuda"}
PRICES = Prices.model_validate({"devices": {"cpu": 0.533, "Tesla K80": 0.967}})
FIVE_TIMES = {"claimed": 5.9, "metric": "usd_per_result", "setting": ON_CPU, "against": ON_GPU}


@pytest.fixture
def judged():
    """Judge claims on DAWNBench's pair: a result in 97.18 h on a CPU, in 9.06 h on a K80."""

    def judge(*figures: dict[str, Any], prices: Prices = PRICES) -> list[ClaimFinding]:
        rows = []
        for block in range(3):
            for axes, hours in ((ON_CPU, 97.18), (ON_GPU, 9.06 + 0.01 * block * block)):
                took = hours * (1 + 0.001 * block)
                metrics = {
                    "samples_per_second": {"value": 1e6 / took / 3600, "unit": "1/s"},
                    "results_per_hour": {"value": 1.0 / took, "unit": "results/h"},
                    "epoch_samples": {"value": 50_000.0, "unit": "samples"},
                }
                effective = {"device_names": ["Tesla K80"] if axes is ON_GPU else ["a CPU"], **axes}
                rows.append(make_run(axes, block, 1.0, metrics=metrics, effective=effective))
        stated = {"id": "cost", "statement": "a GPU is cheaper", "source": "DAWNBench", "figures": figures}
        plan = make_manifest([ON_CPU, ON_GPU], 3)
        report = ClaimsOptions(claims=(Claim.model_validate(stated),)).model_dump(mode="json")
        options = plan.options.model_copy(update={"prices": prices, "report": report})
        return list(analyse(rows, plan.model_copy(update={"options": options})).section(Claims).figures)

    return judge


def test_the_cost_of_a_result_is_a_metric_of_claims(judged) -> None:
    (found,) = judged(FIVE_TIMES)
    assert found.verdict is ClaimVerdict.agrees
    assert found.measured.value == pytest.approx(51.80 / 8.76, rel=5e-3)


def test_an_epoch_a_million_samples_and_an_hour_have_a_cost(judged) -> None:
    names = ("usd_per_epoch", "usd_per_million_samples", "usd_per_hour", "usd_per_result")
    found = judged(*({"metric": name, "setting": ON_CPU, "unit": "USD"} for name in names))
    values = [one.measured.value for one in found]
    assert values == pytest.approx([51.8 / 20, 51.8, 0.533, 51.8], rel=2e-3)


def test_without_a_price_the_claim_is_not_testable(judged) -> None:
    (found,) = judged(FIVE_TIMES, prices=Prices())
    assert found.verdict is ClaimVerdict.not_testable
    assert "no price is given for its devices" in found.reason
