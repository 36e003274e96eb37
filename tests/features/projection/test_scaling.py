"""Published efficiencies of several devices: which devices they apply to, and what they refuse."""

import pytest

from accelsweep.devices.datasheets import datasheet
from accelsweep.features.projection.model import Projection, Range
from accelsweep.features.projection.scaling import (
    COUNTS,
    Efficiency,
    multi_device_rate,
    published_efficiency,
    scaling_refusal,
)

ONE = Projection(
    device="l4",
    name="L4",
    form="training, mixed precision",
    rate=Range(value=100, low=50, high=200),
    limit="operations",
)


def test_a_device_in_the_table_has_its_own_efficiency():
    """Eight H100 SXM trained ResNet-50 at 20,728 images/s, one at 2,616: 99 %. Other networks lost more."""
    found = published_efficiency(datasheet("h100-sxm"), 8)
    assert found is not None
    assert found.low < 20728 / (8 * 2616) <= found.high <= 1
    assert "of the NVIDIA H100 SXM" in found.source


def test_another_device_has_the_efficiency_of_devices_with_the_same_link():
    nvlink, pcie = (published_efficiency(datasheet(key), 2) for key in ("h200", "l4"))
    assert nvlink is not None
    assert pcie is not None
    assert "NVLink" in nvlink.source
    assert "PCIe" in pcie.source


@pytest.mark.parametrize("key", ["h100-sxm", "a100-80", "l4", "rtx4090", "t4"])
def test_more_devices_never_scale_better_than_fewer(key):
    """Eight devices on PCIe were published for servers only, which scale better than two in a workstation."""
    found = [published_efficiency(datasheet(key), count) for count in COUNTS]
    values = [one.value for one in found if one is not None]
    assert values == sorted(values, reverse=True)
    assert published_efficiency(datasheet(key), 3) is None


@pytest.mark.parametrize(
    ("changed", "batch", "parameters", "why"),
    [
        ({"limit": "data loading"}, 64, 1e6, "limited by data loading"),
        ({"limit": "starting kernels"}, 64, 1e6, "limited by starting kernels"),
        ({"form": "inference, mixed precision"}, 64, 1e6, "only for training"),
        ({}, 64, None, "number of parameters is unknown"),
        ({}, 1, 1e9, "times the gradients of any published network"),
        ({}, 64, 1e6, None),
    ],
)
def test_networks_unlike_the_published_ones_are_refused(changed, batch, parameters, why):
    found = scaling_refusal(ONE.model_copy(update=changed), batch, parameters)
    assert why in (found or "") if why else found is None


def test_the_intervals_of_rate_and_efficiency_combine():
    found = multi_device_rate(ONE, 4, Efficiency(0.9, 0.6, 1.0, "made up"))
    assert found.value == pytest.approx(360)
    assert found.low < 4 * 0.9 * 50
    assert found.low > 4 * 0.6 * 50, "both worst cases at once are less likely than one"
    assert 4 * 0.9 * 200 < found.high < 4 * 1.0 * 200 + 40
