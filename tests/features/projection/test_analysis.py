"""From a sweep's runs to projections: which setting, which rate, and the reasons for none."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from resnet50 import RESNET50
from simulated_sweep import make_manifest, make_run

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.config.prices import Prices
from accelsweep.devices.datasheets import datasheet
from accelsweep.features.projection.analysis import DEFAULT_DEVICES, Targets, project_onto
from accelsweep.features.projection.model import Projections
from accelsweep.results import Doubt

SMALL, LARGE = {"batch_size": 32}, {"batch_size": 64}


def projections_of(traits: Any = RESNET50, targets: Targets | None = None, **fields: Any) -> Projections:
    """Return the projections of a sweep of six blocks whose larger batch is faster."""
    runs = [
        replace(make_run(axes, block, rate * (1 + block / (1000 + rate)), **fields), traits=traits)
        for block in range(6)
        for axes, rate in ((SMALL, 10.0), (LARGE, 40.0))
    ]
    manifest = make_manifest([SMALL, LARGE], 6)
    projections = project_onto(Analysis.of(runs, manifest), targets or Targets.default(manifest))
    assert projections is not None
    return projections


def test_the_recommended_setting_is_projected_onto_the_usual_devices() -> None:
    projections = projections_of(quality=0.9)
    assert projections.rate_here == 40.1
    assert {one.device for one in projections.devices} == set(DEFAULT_DEVICES)
    rates = {(one.device, one.form): one.rate.value for one in projections.devices if one.rate}
    assert rates["h100-sxm", "training, mixed precision"] > rates["l4", "training, mixed precision"]


def test_a_sweep_of_an_older_version_says_why_nothing_is_projected() -> None:
    assert "were not recorded" in (projections_of(None).reason or "")
    reason = "not counted: the step raised RuntimeError on the meta device: no"
    assert projections_of(reason).reason == f"not projected: {reason}"


def test_trees_are_no_networks_and_are_not_projected() -> None:
    projections = projections_of(None, config={"task": "boosting"}, row_rounds_per_second=1.0)
    assert projections.reason == "not projected: boosted trees are trained by other libraries, without matrix products"


def test_projections_have_no_ratio_to_a_disturbed_rate() -> None:
    """The ratio to a rate that other work slowed down would flatter every device."""
    busy = Doubt(code="busy_cpu", message="others were there", remedy="stop them")
    projections = projections_of(doubts=(asdict(busy),))
    assert projections.disturbed
    assert all(one.rate is not None and one.ratio is None for one in projections.devices if one.reason is None)
    assert all(one.ratio is not None for one in projections_of().devices if one.reason is None)


def test_the_measured_wait_for_data_bounds_every_device() -> None:
    """Half of a step of 4 s is waiting for 64 samples: no device is faster than 32 samples a second."""
    projections = projections_of(data_wait_share=0.5, step_seconds=4.0)
    assert all(one.rate.value < 33 for one in projections.devices if one.rate)
    assert {one.limit for one in projections.devices if one.rate} == {"data loading"}


def test_prices_are_found_by_a_devices_key_or_name() -> None:
    prices = {"devices": {"l4": 0.8, "Tesla T4": 0.5}}
    options = make_manifest([SMALL], 1).options
    known = options.model_validate({**options.model_dump(), "prices": prices}).prices
    targets = Targets((datasheet("l4"), datasheet("t4"), datasheet("h100-sxm")), known)
    asked = {one.device: one.usd_per_hour for one in projections_of(targets=targets).devices if one.rate}
    assert asked == {"l4": 0.8, "t4": 0.5, "h100-sxm": None}


def test_a_bought_device_has_an_hourly_price_too() -> None:
    card = {"usd": 1599, "lifetime_years": 3, "utilisation": 0.25, "watts": 450}
    options = make_manifest([SMALL], 1).options
    known = options.model_validate({**options.model_dump(), "prices": {"purchase": {"rtx4090": card}}}).prices
    (projections, *_) = projections_of(targets=Targets((datasheet("rtx4090"),), known)).devices
    assert projections.usd_per_hour == known.hourly["rtx4090"].usd_per_hour


def test_another_batch_is_projected_on_its_own() -> None:
    """A GPU takes a larger batch than a CPU, at a higher rate."""
    small, large = (projections_of(targets=Targets((datasheet("l4"),), Prices(), batch)) for batch in (None, 512))
    assert (small.batch, large.batch) == (64, 512)
    assert small.devices[0].rate is not None
    assert large.devices[0].rate is not None
    assert large.devices[0].rate.value > small.devices[0].rate.value
