"""Several kinds of hardware are weighed by what a result costs on each, and by nothing else."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from accelsweep.analysis.merge_sweeps import Part, analyse_together
from accelsweep.config.prices import Prices
from accelsweep.records.findings import Certainty, Findings

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
        settings = plan.settings.model_copy(update={"prices": prices})
        return Part(accelerator, rows, plan.model_copy(update={"sweep": accelerator, "settings": settings}))

    return build


def test_dawnbenchs_pair_is_advised_by_the_cost_of_a_result(together) -> None:
    """51.80 USD on 16 vCPU, 8.76 USD on a K80: 5.9 times as much."""
    advice = together().recommendation
    assert advice.choice is not None
    assert advice.choice.hardware == "Tesla K80"
    assert advice.certainty is Certainty.sure
    assert advice.headline.endswith("the cheapest result")
    assert "On Tesla K80 a result costs 8.76" in advice.sentence
    assert "On 16 vCPU (batch 32) it costs 51.8 USD" in advice.sentence
    assert "5.9x as much" in advice.sentence
    assert [one.title for one in advice.alternatives] == ["On 16 vCPU", "On Tesla K80"]
    assert advice.alternatives_title == "On each kind of hardware"


def test_the_faster_machine_is_not_preferred_where_its_result_costs_more(together) -> None:
    advice = together(gpu_hours=60.0).recommendation
    assert advice.choice.hardware == "16 vCPU"
    assert "58" in advice.sentence


def test_costs_whose_intervals_overlap_are_not_told_apart(together) -> None:
    advice = together(noise=0.3, gpu_hours=45.0).recommendation
    assert advice.certainty is Certainty.not_told_apart
    assert "perhaps the cheapest" in advice.headline
    assert "overlap" in advice.sentence


def test_without_prices_none_is_preferred_and_what_is_missing_is_said(together) -> None:
    advice = together(prices=Prices()).recommendation
    assert advice.choice is None
    assert "train to a target, with prices" in advice.sentence
