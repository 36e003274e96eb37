"""Cells that train to a target: compared by results per hour, priced per result, and shown where they miss it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.prices import Prices
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.run_record import Outcome

CPU, GPU = {"accelerator": "cpu"}, {"accelerator": "cuda"}
PRICES = Prices.model_validate({"devices": {"cpu": {"usd_per_hour": 0.533, "source": "DAWNBench"}, "Tesla K80": 0.967}})
MISSED = "target val_accuracy >= 0.94 not reached within 1000000 samples (best 0.91)"


def metrics(hours: float | None) -> dict[str, Any]:
    """The metrics of a run at 1000 samples/s whose result took so many hours, or which missed its target."""
    absent = {"value": None, "reason": MISSED}
    return {
        "samples_per_second": {"value": 1000.0, "unit": "1/s"},
        "epoch_samples": {"value": 50_000.0, "unit": "samples"},
        "time_to_target_seconds": {"unit": "s", **({"value": hours * 3600.0} if hours else absent)},
        "results_per_hour": {"unit": "results/h", **({"value": 1.0 / hours} if hours else absent)},
    }


def analysed(simulated: ModuleType, cpu: list[float | None], gpu: list[float | None], **settings: Any) -> Findings:
    """One list per cell: the hours of each repeat, None for one that missed its target."""
    rows = []
    on_gpu = {"device_names": ["Tesla K80"], "accelerator": "cuda"}
    for block, (own, other) in enumerate(zip(cpu, gpu, strict=True)):
        shared: dict[str, Any] = {"config": {"task": "time_to_accuracy"}}
        rows.append(simulated.make_run(CPU, block, 1.0, metrics=metrics(own), **shared))
        rows.append(simulated.make_run(GPU, block, 1.0, metrics=metrics(other), effective=on_gpu, **shared))
    manifest = simulated.make_manifest([CPU, GPU], len(cpu))
    return analyse(
        rows,
        manifest.model_copy(update={"settings": manifest.settings.model_copy(update={"prices": PRICES, **settings})}),
    )


def both(findings: Findings) -> tuple[CellFinding, CellFinding]:
    cpu, gpu = findings.cells
    return cpu, gpu


def test_dawnbenchs_published_pair_gives_its_published_times_ratio_and_costs(simulated: ModuleType) -> None:
    """Stanford's DAWNBench, CIFAR-10, ResNet-164 to 94 %.

    16 vCPU 97.18 h at 0.533 USD/h; one K80 9.06 h at 0.967 USD/h: 10.7x faster, 5.9x cheaper (51.80 and 8.76 USD).
    """
    findings = analysed(simulated, [97.18], [9.06])
    cpu, gpu = both(findings)
    assert cpu.time_to_target is not None
    assert gpu.time_to_target is not None
    assert (cpu.time_to_target.value, cpu.time_to_target.unit) == (pytest.approx(97.18 * 3600, rel=1e-5), "s")
    assert gpu.speedup is not None
    assert gpu.speedup.ratio.value == pytest.approx(10.7, abs=0.05)
    assert cpu.costs["usd_per_result"].value == pytest.approx(51.80, abs=0.005)
    assert gpu.costs["usd_per_result"].value == pytest.approx(8.76, abs=0.005)
    assert not findings.cost_gaps


def test_the_interval_of_a_time_and_of_a_cost_per_result_is_that_of_the_rate_turned_over(simulated: ModuleType) -> None:
    cell = both(analysed(simulated, [97.0, 98.0, 97.5], [9.0, 9.1, 9.05]))[1]
    rate, time, cost = cell.rate, cell.time_to_target, cell.costs["usd_per_result"]
    assert rate is not None
    assert time is not None
    assert rate.low is not None
    assert rate.high is not None
    assert (time.low, time.high) == (
        pytest.approx(3600 / rate.high, rel=1e-4),
        pytest.approx(3600 / rate.low, rel=1e-4),
    )
    assert (cost.low, cost.high) == (
        pytest.approx(0.967 / rate.high, rel=1e-4),
        pytest.approx(0.967 / rate.low, rel=1e-4),
    )


def test_samples_and_epochs_cost_what_the_samples_rate_makes_them_cost(simulated: ModuleType) -> None:
    """1000 samples/s at 0.533 USD/h: a million takes 1000 s, an epoch of 50 000 takes 50 s."""
    costs = both(analysed(simulated, [97.18], [9.06]))[0].costs
    assert costs["usd_per_million_samples"].value == pytest.approx(0.533 * 1000 / 3600, rel=1e-5)
    assert costs["usd_per_epoch"].value == pytest.approx(0.533 * 50 / 3600, rel=1e-5)


def test_the_advice_weighs_the_cost_of_a_result(simulated: ModuleType) -> None:
    findings = analysed(simulated, [97.0, 98.0, 97.5], [9.0, 9.1, 9.05])
    assert "The same work costs 0.17x as much." in findings.recommendation.sentence
    assert "usd_per_result" in findings.pareto_objectives


def test_a_cell_that_never_gets_there_is_measured_and_has_no_rate_but_the_reason(simulated: ModuleType) -> None:
    cpu, gpu = both(analysed(simulated, [97.0, 98.0, 97.5], [None, None, None]))
    assert cpu.rate is not None
    assert (gpu.measured, gpu.rate, gpu.time_to_target) == (3, None, None)
    assert gpu.outcomes == {Outcome.measured: 3}
    assert gpu.verdict is Verdict.not_measured
    assert gpu.verdict_reason == f"3 of 3 runs: measured ({MISSED})"
    assert gpu.metrics["time_to_target_seconds"].reason == MISSED
    assert "usd_per_result" not in gpu.costs
    assert "usd_per_million_samples" in gpu.costs


def test_where_no_run_gets_there_the_missing_cost_says_so(simulated: ModuleType) -> None:
    findings = analysed(simulated, [None], [None])
    assert findings.cost_gaps == ("Cost per result: not given, because no run reached its target.",)
    assert findings.recommendation.choice is None


def test_a_baseline_that_never_gets_there_leaves_nothing_to_compare_with(simulated: ModuleType) -> None:
    gpu = both(analysed(simulated, [None, None, None], [9.0, 9.1, 9.05]))[1]
    assert gpu.verdict is Verdict.undecided
    assert MISSED in gpu.verdict_reason


def test_a_time_of_those_repeats_alone_that_got_there_is_doubted(simulated: ModuleType) -> None:
    gpu = both(analysed(simulated, [97.0, 98.0, 97.5, 97.2], [9.0, 9.1, None, 9.05]))[1]
    (doubt,) = [doubt for doubt in gpu.doubts if doubt.code == "target_missed"]
    assert doubt.message.startswith("3 of 4 measured repeats reached the target")
    assert gpu.rate is not None
    assert (gpu.measured, gpu.rate.count) == (4, 3)
