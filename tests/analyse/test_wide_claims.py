"""Figures of claims over workloads and over sweeps, and on boards that nobody measured: projected, and never tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError
from resnet50 import RESNET50

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.run_results import CellRuns, group
from accelsweep.config.prices import Prices
from accelsweep.features.claims.cross_sweep import claims_beside
from accelsweep.features.claims.model import ClaimFigure, ClaimFinding, ClaimsOptions, ClaimVerdict

RATIOS = {"small": 10.0, "medium": 20.0, "large": 40.0}
OVER = {"claimed": 20, "mean_over": "workload", "cell": {"accelerator": "cuda"}, "against": {"accelerator": "cpu"}}
ONTO = {"claimed": 20, "projected": "l4", "cell": {"accelerator": "cpu"}, "against": {"accelerator": "cpu"}}


def judge(
    simulated: ModuleType,
    figure: Mapping[str, Any],
    ratios: Mapping[str, float] = RATIOS,
    others: Mapping[str, Sequence[CellRuns]] | None = None,
    prices: Mapping[str, Any] | None = None,
    **fields: Any,
) -> ClaimFinding:
    """Judge a figure on a sweep of three workloads on a CPU of 2 samples a second and a GPU of `ratios` times that."""
    cells = [{"accelerator": device, "workload": name} for name in ratios for device in ("cpu", "cuda")]
    manifest = simulated.make_manifest(cells, 3)
    claim = {"id": "wide", "statement": "a GPU is fast", "source": "a forum", "figures": [figure]}
    report = ClaimsOptions.model_validate({"claims": [claim]}).model_dump(mode="json")
    settings = manifest.settings.model_copy(
        update={"report": report, "prices": Prices.model_validate(prices or {"devices": {"l4": 0.8}})}
    )
    runs = rows(simulated, cells, ratios, **fields)
    found = claims_beside(Analysis.of(runs, manifest.model_copy(update={"settings": settings})), others or {})
    assert found is not None
    return found.figures[0]


def rows(simulated: ModuleType, cells: Sequence[Mapping[str, str]], ratios: Mapping[str, float], **fields: Any) -> Any:
    """Return three blocks of runs with ResNet-50's counts, at a batch of 256."""
    return [
        replace(
            simulated.make_run(
                axes,
                block,
                2.0 * (ratios[axes["workload"]] if axes["accelerator"] == "cuda" else 1.0) * (1 + block / 1e4),
                effective={"batch_size": 256},
                **fields,
            ),
            traits=RESNET50,
        )
        for block in range(3)
        for axes in cells
    ]


def test_a_figure_over_workloads_is_their_geometric_mean_with_an_interval_over_them(simulated: ModuleType) -> None:
    """10, 20 and 40: the mean is 20. t's quantile of two degrees of freedom leaves 20 x / 5.6."""
    found = judge(simulated, OVER)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(20, rel=1e-6)
    assert found.measured.low == pytest.approx(20 / math.exp(4.3027 * math.log(2) / math.sqrt(3)), rel=1e-3)
    assert found.measured.count == 3, "workloads, not runs"
    assert found.verdict is ClaimVerdict.undecided
    assert found.labels == ("geometric mean over 3 workloads",)


def test_two_workloads_are_too_few(simulated: ModuleType) -> None:
    found = judge(simulated, OVER, {"small": 10.0, "large": 40.0})
    assert found.verdict is ClaimVerdict.not_testable
    assert found.measured is None


def test_a_figure_over_sweeps_takes_one_value_from_each(simulated: ModuleType) -> None:
    others = {}
    for name, ratio in RATIOS.items():
        cells = [{"accelerator": device, "workload": name} for device in ("cpu", "cuda")]
        others[name] = group(simulated.make_manifest(cells, 3), rows(simulated, cells, {name: ratio}))
    sweeps = {**OVER, "mean_over": None, "sweeps": ["small", "medium", "large"]}
    found = judge(simulated, sweeps, others=others)
    assert found.measured is not None
    assert found.measured.value == pytest.approx(20, rel=1e-6)
    assert found.labels == ("geometric mean over 3 sweeps",)
    absent = judge(simulated, sweeps, others={"small": others["small"]})
    assert absent.verdict is ClaimVerdict.not_testable
    assert "medium: there is no such sweep here; large: there is no such sweep here" in absent.reason


def test_what_is_projected_is_called_so_and_is_no_measured_value(simulated: ModuleType) -> None:
    found = judge(simulated, {**ONTO, "cell": CPU, "against": CPU})
    assert found.measured is None
    assert found.projected is not None
    assert found.projected.low < found.projected.value < found.projected.high
    assert found.verdict_words.startswith("projected: ")
    assert found.board == "l4"
    assert judge(simulated, {**ONTO, "claimed": None, "cell": CPU, "against": CPU}).verdict_words == (
        "projected: no figure claimed"
    )


CPU = {"accelerator": "cpu", "workload": "small"}


def test_the_error_of_the_device_does_not_average_out_over_workloads(simulated: ModuleType) -> None:
    """Three equal workloads on one board: the interval stays that of one of them."""
    one = judge(simulated, {**ONTO, "cell": CPU, "against": CPU}).projected
    three = judge(simulated, {**ONTO, "mean_over": "workload"}).projected
    assert one is not None
    assert three is not None
    assert three.high / three.low == pytest.approx(one.high / one.low, rel=0.1)


def test_money_is_projected_with_a_price_and_refused_without(simulated: ModuleType) -> None:
    money = {"metric": "usd_per_million_samples", "unit": "USD", "projected": "l4", "cell": CPU, "claimed": "at most 9"}
    found = judge(simulated, money).projected
    rate = judge(simulated, {**money, "metric": "samples_per_second", "unit": "1/s"}).projected
    assert found is not None
    assert rate is not None
    assert found.value == pytest.approx(0.8 / 3600 * 1e6 / rate.value, rel=0.06)
    without = judge(simulated, money, prices={"devices": {"cpu": 0.5}})
    assert without.verdict is ClaimVerdict.not_testable
    assert "no price is given for the L4" in without.reason
    other = judge(simulated, {**money, "metric": "energy_joules", "unit": "J"}, energy_joules=3.0)
    assert "energy_joules is not projected" in other.reason


def test_a_ratio_to_a_disturbed_rate_is_not_projected(simulated: ModuleType) -> None:
    busy = [{"code": "busy_cpu", "message": "others were there", "remedy": "stop them"}]
    found = judge(simulated, {**ONTO, "cell": CPU, "against": CPU}, doubts=busy)
    assert found.verdict is ClaimVerdict.disturbed
    assert found.projected is None


def test_a_projection_whose_runs_wait_is_not_run(simulated: ModuleType) -> None:
    """The command that runs a claim is shown for what is not run, and not for what cannot be tested."""
    found = judge(simulated, {**ONTO, "cell": CPU, "against": CPU}, outcome="not_run", reason="nobody has started it")
    assert found.verdict is ClaimVerdict.not_run
    assert found.verdict_words == "not run"


def test_a_figure_goes_over_one_thing_only() -> None:
    with pytest.raises(ValidationError, match="leave out `mean_over` or `sweeps`"):
        ClaimFigure.model_validate({**OVER, "sweeps": ["a"]})
    with pytest.raises(ValidationError, match="no `mean_over`, `sweeps` or `projected`"):
        ClaimFigure.model_validate({"metric": "outcome.diverged", "unit": "1", "cell": CPU, "mean_over": "workload"})
