"""From a sweep's runs to projections: which setting, which rate, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

from resnet50 import RESNET50

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.config.prices import Prices
from accelsweep.devices.datasheets import datasheet
from accelsweep.features.projection.analysis import USUAL, Onto, project_onto
from accelsweep.features.projection.model import Elsewhere
from accelsweep.records.run_record import Doubt

SMALL, LARGE = {"batch_size": 32}, {"batch_size": 64}


def projected(simulated: ModuleType, traits: Any = RESNET50, onto: Onto | None = None, **fields: Any) -> Elsewhere:
    """Return the projections of a sweep of six blocks whose larger batch is faster."""
    runs = [
        replace(simulated.make_run(axes, block, rate * (1 + block / (1000 + rate)), **fields), traits=traits)
        for block in range(6)
        for axes, rate in ((SMALL, 10.0), (LARGE, 40.0))
    ]
    manifest = simulated.make_manifest([SMALL, LARGE], 6)
    found = project_onto(Analysis.of(runs, manifest), onto or Onto.usual(manifest))
    assert found is not None
    return found


def test_the_recommended_setting_is_projected_onto_the_usual_devices(simulated: ModuleType) -> None:
    found = projected(simulated, quality=0.9)
    assert found.rate_here == 40.1
    assert {one.device for one in found.devices} == set(USUAL)
    rates = {(one.device, one.form): one.rate.value for one in found.devices if one.rate}
    assert rates["h100-sxm", "training, mixed precision"] > rates["l4", "training, mixed precision"]


def test_a_sweep_of_an_older_version_says_why_nothing_is_projected(simulated: ModuleType) -> None:
    assert "measured before" in (projected(simulated, None).reason or "")
    reason = "not counted: on the meta device the step raised RuntimeError: no"
    assert projected(simulated, reason).reason == f"not projected: {reason}"


def test_trees_are_no_networks_and_are_not_projected(simulated: ModuleType) -> None:
    found = projected(simulated, None, config={"task": "boosting"}, row_rounds_per_second=1.0)
    assert found.reason == "not projected: trees are grown by other libraries, whose work is no product of matrices"


def test_a_disturbed_rate_is_compared_with_nothing(simulated: ModuleType) -> None:
    """A ratio to a rate that others slowed down would flatter every device."""
    busy = Doubt(code="busy_cpu", message="others were there", remedy="stop them")
    found = projected(simulated, doubts=(busy.model_dump(),))
    assert found.disturbed
    assert all(one.rate is not None and one.ratio is None for one in found.devices if one.reason is None)
    assert all(one.ratio is not None for one in projected(simulated).devices if one.reason is None)


def test_the_measured_wait_for_data_bounds_every_device(simulated: ModuleType) -> None:
    """Half of a step of 4 s is waiting for 64 samples: no device is faster than 32 samples a second."""
    found = projected(simulated, data_wait_share=0.5, step_seconds=4.0)
    assert all(one.rate.value < 33 for one in found.devices if one.rate)
    assert {one.limit for one in found.devices if one.rate} == {"data loading"}


def test_prices_go_by_a_devices_key_or_name(simulated: ModuleType) -> None:
    prices = {"devices": {"l4": 0.8, "Tesla T4": 0.5}}
    settings = simulated.make_manifest([SMALL], 1).settings
    known = settings.model_validate({**settings.model_dump(), "prices": prices}).prices
    onto = Onto((datasheet("l4"), datasheet("t4"), datasheet("h100-sxm")), known)
    asked = {one.device: one.usd_per_hour for one in projected(simulated, onto=onto).devices if one.rate}
    assert asked == {"l4": 0.8, "t4": 0.5, "h100-sxm": None}


def test_a_device_that_is_bought_has_a_price_too(simulated: ModuleType) -> None:
    """The list of bought cards gave projections no price, because only hourly prices were looked up."""
    card = {"usd": 1599, "lifetime_years": 3, "utilisation": 0.25, "watts": 450}
    settings = simulated.make_manifest([SMALL], 1).settings
    known = settings.model_validate({**settings.model_dump(), "prices": {"purchase": {"rtx4090": card}}}).prices
    (found, *_) = projected(simulated, onto=Onto((datasheet("rtx4090"),), known)).devices
    assert found.usd_per_hour == known.hourly["rtx4090"].usd_per_hour


def test_another_batch_is_projected_on_its_own(simulated: ModuleType) -> None:
    """A CPU's batch is small. A GPU takes a larger one, at a higher rate."""
    small, large = (projected(simulated, onto=Onto((datasheet("l4"),), Prices(), batch)) for batch in (None, 512))
    assert (small.batch, large.batch) == (64, 512)
    assert small.devices[0].rate is not None
    assert large.devices[0].rate is not None
    assert large.devices[0].rate.value > small.devices[0].rate.value
