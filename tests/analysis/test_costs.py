"""Costs follow from prices and measured rates; without a price there is no cost."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.config.prices import Prices
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.results import Outcome

CPU, GPU = {"accelerator": "cpu"}, {"accelerator": "cuda"}
CPU_HOURS, GPU_HOURS = 97.18, 9.06
PRICES = {"devices": {"cpu": {"usd_per_hour": 0.533, "source": "DAWNBench"}, "Tesla K80": 0.967}}


def _analysed(simulated: ModuleType, prices: dict[str, Any], repeats: int = 1, **fields: Any) -> Findings:
    """DAWNBench's CIFAR-10 pair (ResNet-164 to 94 %), as if a result took one million samples."""
    rows = []
    for block in range(repeats):
        gpu = {"device_names": ["Tesla K80"], "accelerator": "cuda"}
        rates = [1e6 / (hours * 3600.0) * (1.0 + block / 1000.0) for hours in (CPU_HOURS, GPU_HOURS)]
        rows.append(simulated.make_run(CPU, block, rates[0], **fields))
        rows.append(simulated.make_run(GPU, block, rates[1] * 1.001**block, effective=gpu, **fields))
    manifest = simulated.make_manifest([CPU, GPU], repeats)
    options = manifest.options.model_validate({**manifest.options.model_dump(), "prices": prices})
    return analyse(rows, manifest.model_copy(update={"options": options}))


def test_dawnbenchs_published_pair_gives_its_published_ratios(simulated: ModuleType) -> None:
    """16 vCPU 97.18 h at 0.533 USD/h; K80 9.06 h at 0.967 USD/h: 10.7x as fast, 5.9x cheaper (51.80, 8.76 USD)."""
    cpu, gpu = _analysed(simulated, PRICES).settings
    assert gpu.speedup is not None
    assert gpu.speedup.ratio.value == pytest.approx(10.7, abs=0.05)
    dollars = [setting.costs["usd_per_million_samples"].value for setting in (cpu, gpu)]
    assert dollars == pytest.approx([51.80, 8.76], abs=0.005)
    assert dollars[0] / dollars[1] == pytest.approx(5.9, abs=0.05)


def test_without_a_price_there_is_no_cost_and_the_findings_say_so(simulated: ModuleType) -> None:
    findings = _analysed(simulated, {})
    assert all(not setting.costs for setting in findings.settings)
    assert findings.costs_note is not None
    assert "no prices are configured" in findings.costs_note
    other = _analysed(simulated, {"devices": {"mps": 1.0}})
    assert other.costs_note is not None
    assert "prices.devices contains mps" in other.costs_note


def test_a_setting_without_a_price_has_no_cost_beside_one_that_has(simulated: ModuleType) -> None:
    findings = _analysed(simulated, {"devices": {"cuda": 1.0}})
    assert [bool(setting.costs) for setting in findings.settings] == [False, True]
    assert findings.costs_note is None


def test_the_interval_of_a_cost_is_that_of_the_rate_turned_over(simulated: ModuleType) -> None:
    setting = _analysed(simulated, PRICES, repeats=3).settings[0]
    rate, cost = setting.rate, setting.costs["usd_per_million_samples"]
    assert rate is not None
    assert rate.low is not None
    assert rate.high is not None
    scale = 0.533 / 3600.0 * 1e6
    assert (cost.value, cost.low, cost.high) == pytest.approx(
        (scale / rate.value, scale / rate.high, scale / rate.low), rel=1e-5
    )


def test_processes_on_a_cpu_share_the_rent_of_their_node_and_gpus_add_up(simulated: ModuleType) -> None:
    prices = {"devices": {"cpu": 0.5, "cuda": 2.0}}
    two = _analysed(simulated, prices, config={"devices": 2})
    assert [setting.costs["usd_per_hour"].value for setting in two.settings] == [0.5, 4.0]


def test_a_measured_energy_becomes_joules_money_and_carbon(simulated: ModuleType) -> None:
    prices = {**PRICES, "electricity": {"usd_per_kwh": 0.36}, "carbon": {"grams_per_kwh": 400.0}}
    costs = _analysed(simulated, prices, energy_joules=720.0, window_samples=100.0).settings[0].costs
    assert costs["joules_per_sample"].value == pytest.approx(7.2)
    assert costs["energy_usd_per_million_samples"].value == pytest.approx(0.72)
    assert costs["co2_grams_per_million_samples"].value == pytest.approx(800.0)


def test_costs_and_energy_are_also_given_per_token_where_tokens_were_counted(simulated: ModuleType) -> None:
    counted = {"tokens_per_second": 50.0, "window_tokens": 400.0}
    costs = _analysed(simulated, PRICES, energy_joules=720.0, window_samples=100.0, **counted).settings[0].costs
    assert costs["joules_per_token"].value == pytest.approx(1.8)
    assert costs["usd_per_million_tokens"].value == pytest.approx(0.533 / 3600.0 * 1e6 / 50.0, rel=1e-5)


def test_an_energy_that_was_not_read_is_absent_and_never_zero(simulated: ModuleType) -> None:
    costs = _analysed(simulated, {**PRICES, "electricity": {"usd_per_kwh": 0.36}}).settings[0].costs
    assert set(costs) == {"usd_per_hour", "usd_per_million_samples"}


def test_the_prices_behind_the_costs_travel_with_their_dates_and_sources(simulated: ModuleType) -> None:
    priced = {"usd_per_hour": 0.5, "date": "2026-01", "source": "a list"}
    prices = {"devices": {"cpu": priced, "mps": 9.0}, "electricity": 0.3}
    findings = _analysed(simulated, prices)
    assert [(one.name, one.value, one.date, one.source) for one in findings.prices] == [
        ("cpu", 0.5, "2026-01", "a list")
    ], "only what was used: no mps was measured, and no energy"
    powered = _analysed(simulated, prices, energy_joules=720.0, window_samples=100.0)
    assert [one.name for one in powered.prices] == ["cpu", "electricity"]


def test_an_epoch_has_a_cost_only_where_the_records_hold_its_size(simulated: ModuleType) -> None:
    """At 0.533 USD/h and the rate of 1e6 samples in 97.18 h, 50 000 samples cost a twentieth of 51.80 USD."""
    sized = _analysed(simulated, PRICES, epoch_samples=50_000.0)
    assert sized.settings[0].costs["usd_per_epoch"].value == pytest.approx(51.80 / 20, abs=0.001)
    assert [gap.partition(":")[0] for gap in sized.cost_gaps] == ["Cost per result"]
    unsized = _analysed(simulated, PRICES)
    assert "usd_per_epoch" not in unsized.settings[0].costs
    assert "size of the training data" in unsized.cost_gaps[0]
    assert _analysed(simulated, {}).cost_gaps == ()


TARGET_CPU, TARGET_GPU = {"accelerator": "cpu"}, {"accelerator": "cuda"}
TARGET_PRICES = Prices.model_validate(
    {"devices": {"cpu": {"usd_per_hour": 0.533, "source": "DAWNBench"}, "Tesla K80": 0.967}}
)
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


def analysed(simulated: ModuleType, cpu: list[float | None], gpu: list[float | None], **options: Any) -> Findings:
    """One list per setting: the hours of each repeat, None for one that missed its target."""
    rows = []
    on_gpu = {"device_names": ["Tesla K80"], "accelerator": "cuda"}
    for block, (own, other) in enumerate(zip(cpu, gpu, strict=True)):
        shared: dict[str, Any] = {"config": {"task": "time_to_accuracy"}}
        rows.append(simulated.make_run(TARGET_CPU, block, 1.0, metrics=metrics(own), **shared))
        rows.append(simulated.make_run(TARGET_GPU, block, 1.0, metrics=metrics(other), effective=on_gpu, **shared))
    manifest = simulated.make_manifest([TARGET_CPU, TARGET_GPU], len(cpu))
    return analyse(
        rows,
        manifest.model_copy(
            update={"options": manifest.options.model_copy(update={"prices": TARGET_PRICES, **options})}
        ),
    )


def both(findings: Findings) -> tuple[SettingFinding, SettingFinding]:
    cpu, gpu = findings.settings
    return cpu, gpu


def test_dawnbenchs_published_pair_gives_its_published_times_ratio_and_costs(simulated: ModuleType) -> None:
    """Stanford's DAWNBench, CIFAR-10, ResNet-164 to 94 %.

    16 vCPU 97.18 h at 0.533 USD/h; one K80 9.06 h at 0.967 USD/h: 10.7x as fast, 5.9x cheaper (51.80 and 8.76 USD).
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
    setting = both(analysed(simulated, [97.0, 98.0, 97.5], [9.0, 9.1, 9.05]))[1]
    rate, time, cost = setting.rate, setting.time_to_target, setting.costs["usd_per_result"]
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


def test_a_setting_that_never_gets_there_is_measured_and_has_no_rate_but_the_reason(simulated: ModuleType) -> None:
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
    assert findings.cost_gaps == ("Cost per result: not available, because no run reached its target.",)
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
