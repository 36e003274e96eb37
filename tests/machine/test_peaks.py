"""The table of boards: units, plausibility, names and keys."""

import csv
import itertools

import pytest

from accelsweep.devices.datasheets import (
    DATASHEET_FORMATS,
    TABLE,
    datasheet,
    datasheet_flops_per_second,
    datasheet_of,
    datasheets,
)
from accelsweep.errors import InputError

ALL = pytest.mark.parametrize("one", datasheets().values(), ids=lambda one: one.key)
STATED = {  # figures that other tables state too: float32, 16 bits, bandwidth in GB/s, memory in GB, watts
    "a100-40": (19.5, 312, 1555, 40, 400),
    "h100-sxm": (66.9, 989.4, 3350, 80, 700),
    "l4": (30.3, 121, 300, 24, 72),
    "t4": (8.1, 65, 320, 16, 70),
    "rtx3090": (35.6, 71, 936, 24, 350),
    "rtx4090": (82.6, 165.2, 1008, 24, 450),
    "v100-16": (15.7, 125, 900, 16, 300),
    "mi300x": (163.4, 1307.4, 5325, 192, 750),
}
RATIOS = {  # a format, the format that it is a multiple of, and the multiples that hardware before the B200 has
    "tf32": ("float32", (1, 2, 4, 7.2, 8)),
    "bfloat16": ("tf32", (2,)),
    "float16": ("float32", (2, 4, 8, 14, 16)),
    "float8": ("float16", (2,)),
    "int8": ("float16", (1, 2, 4)),
}
TENSOR = {"rtx2": 4, "rtx3": 2, "rtx4": 2, "rtx5": 2, "v100": 8, "t4": 8, "a100": 16, "mi300": 8, "max": 16, "b200": 30}
"""How many times the rate of float32 a generation reaches in float16. With sparsity it would be twice as many."""


def test_keys_and_reported_names_address_one_row_each():
    with TABLE.open(encoding="utf-8", newline="") as file:
        keys = [row["key"] for row in csv.DictReader(file)]
    assert len(keys) == len(set(keys)) == len(datasheets())
    named = [name for one in datasheets().values() for name in one.reported]
    assert [datasheet_of(name).key for name in named] == [
        one.key for one in datasheets().values() for _ in one.reported
    ]


@ALL
def test_figures_are_of_the_magnitude_that_their_units_have(one):
    """A figure in other units (GB/s as TB/s, GFLOP/s as TFLOP/s) lies outside of these bounds."""
    assert 2014 <= one.year <= 2025
    assert one.source.split(",")[0] in {"NVIDIA", "AMD", "Intel", "Apple"} or one.source.startswith("computed: ")
    assert set(one.flops_per_second) <= set(DATASHEET_FORMATS)
    assert all(1e12 < peak < 5e15 for peak in one.flops_per_second.values())
    assert 60e9 < one.bandwidth_bytes_per_second < 9e12
    if not one.name.startswith("Apple"):
        assert 5 * 2**30 < one.memory_bytes < 260 * 2**30
        assert 60 < one.power_watts <= 1000
        assert 16e9 <= one.pcie_bytes_per_second <= 128e9
        assert one.link_bytes_per_second is None or 50e9 <= one.link_bytes_per_second <= 1800e9


@pytest.mark.parametrize("one", [one for one in datasheets().values() if one.key != "b200"], ids=lambda one: one.key)
def test_formats_stand_in_ratios_that_hardware_has(one):
    """Half the width is about twice the rate."""
    peaks = one.flops_per_second
    for form, (other, multiples) in RATIOS.items():
        if form in peaks and other in peaks:
            ratio = peaks[form] / peaks[other]
            assert any(times * 0.9 < ratio < times * 1.1 for times in multiples), (form, ratio)
    assert "bfloat16" not in peaks or peaks["bfloat16"] == peaks["float16"]


@pytest.mark.parametrize(("start", "times"), TENSOR.items())
def test_no_peak_of_a_tensor_core_counts_sparsity(start, times):
    found = [one.flops_per_second for key, one in datasheets().items() if key.startswith(start)]
    ratios = [peaks["float16"] / peaks["float32"] for peaks in found if "float16" in peaks]
    assert ratios == pytest.approx([times] * len(ratios), rel=0.03)
    assert ratios


@ALL
def test_what_a_watt_and_a_byte_of_bandwidth_give_is_what_the_generation_reached(one):
    """A peak with sparsity, or power or bandwidth of another board, lies outside."""
    best = max(one.flops_per_second.values(), default=None)
    if best is None or one.power_watts is None:
        return
    most = {2014: 0.05e12, 2016: 0.08e12, 2018: 2e12, 2021: 2.6e12, 2025: 5e12}
    assert best / one.power_watts <= next(reached for year, reached in most.items() if one.year <= year)
    assert 15 < best / one.bandwidth_bytes_per_second < 900


def test_successors_have_more_bandwidth():
    for older, newer in itertools.pairwise(
        ("k80", "p100", "v100-16", "a100-40", "a100-80", "h100-sxm", "h200", "b200")
    ):
        assert datasheet(older).bandwidth_bytes_per_second < datasheet(newer).bandwidth_bytes_per_second
        assert datasheet(older).year <= datasheet(newer).year


@pytest.mark.parametrize("key", STATED)
def test_figures_that_many_tables_state_are_the_same_here(key):
    one = datasheet(key)
    found = (
        one.flops_per_second["float32"] / 1e12,
        one.flops_per_second["float16"] / 1e12,
        one.bandwidth_bytes_per_second / 1e9,
        one.memory_bytes / 2**30,
        one.power_watts,
    )
    assert found == pytest.approx(STATED[key])


def test_a_board_of_two_dies_is_two_devices_with_half_of_all_each():
    one = datasheet("mi250x")
    assert one.devices_on_board == 2
    assert one.flops_per_second["bfloat16"] == pytest.approx(191.5e12)
    assert one.memory_bytes == 64 * 2**30
    assert one.power_watts == 280
    assert datasheet_flops_per_second("Tesla K80", "float32") == pytest.approx(4.365e12)


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(InputError, match=r"no board 'H100-sxn' \(did you mean 'h100-sxm'\?\); there are: a100-40, "):
        datasheet("H100-sxn")


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("A100-SXM4-40GB", "a100-40"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Intel(R) Data Center GPU Max 1550", "max-1550"),
    ],
)
def test_boards_are_known_by_the_names_that_drivers_of_any_age_give_them(name, key):
    assert datasheet_of(name).key == key


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3080",
        "NVIDIA A10G",
        "GRID A100-40C",
        "Tesla V100-SXM3-32GB",
        "Apple M1 GPU",
    ],
)
def test_a_name_that_several_boards_share_or_that_another_board_has_is_not_known(name):
    """The RTX 3080 has two memories with other peaks, and a chip of Apple's has several GPUs, under one name."""
    assert datasheet_of(name) is None
