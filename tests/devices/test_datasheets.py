"""The table of datasheets: units, plausibility, keys, and the names that drivers and users give boards."""

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
    matches_model,
)
from accelsweep.errors import InputError

ALL = pytest.mark.parametrize("sheet", datasheets().values(), ids=lambda sheet: sheet.key)
KNOWN = {  # figures that many tables state: float32, 16 bits, bandwidth in GB/s, memory in GB, watts
    "a100-40": (19.5, 312, 1555, 40, 400),
    "h100-sxm": (66.9, 989.4, 3350, 80, 700),
    "l4": (30.3, 121, 300, 24, 72),
    "t4": (8.1, 65, 320, 16, 70),
    "rtx3090": (35.6, 71, 936, 24, 350),
    "rtx4090": (82.6, 165.2, 1008, 24, 450),
    "v100-16": (15.7, 125, 900, 16, 300),
    "mi300x": (163.4, 1307.4, 5325, 192, 750),
}
RATIOS = {  # a format, the one that it is a multiple of, and the multiples that hardware before the B200 has
    "tf32": ("float32", (1, 2, 4, 7.2, 8)),
    "bfloat16": ("tf32", (2,)),
    "float16": ("float32", (2, 4, 8, 14, 16)),
    "float8": ("float16", (2,)),
    "int8": ("float16", (1, 2, 4)),
}
TENSOR = {"rtx2": 4, "rtx3": 2, "rtx4": 2, "rtx5": 2, "v100": 8, "t4": 8, "a100": 16, "mi300": 8, "max": 16, "b200": 30}
"""Speed-up of float16 over float32 by generation; with sparsity it would be twice as high."""


def test_keys_and_reported_names_identify_one_row_each():
    with TABLE.open(encoding="utf-8", newline="") as file:
        keys = [row["key"] for row in csv.DictReader(file)]
    assert len(keys) == len(set(keys)) == len(datasheets())
    for sheet in datasheets().values():
        assert [datasheet_of(name) for name in sheet.reported] == [sheet] * len(sheet.reported)


@ALL
def test_figures_have_the_magnitude_of_their_units(sheet):
    """A figure in other units (TB/s, GFLOP/s) lies outside of these bounds."""
    assert 2014 <= sheet.year <= 2025
    assert sheet.source.split(",")[0] in {"NVIDIA", "AMD", "Intel", "Apple"} or sheet.source.startswith("computed: ")
    assert set(sheet.flops_per_second) <= set(DATASHEET_FORMATS)
    assert all(1e12 < peak < 5e15 for peak in sheet.flops_per_second.values())
    assert 60e9 < sheet.bandwidth_bytes_per_second < 9e12
    if not sheet.name.startswith("Apple"):
        assert 5 * 2**30 < sheet.memory_bytes < 260 * 2**30
        assert 60 < sheet.power_watts <= 1000
        assert 16e9 <= sheet.pcie_bytes_per_second <= 128e9
        assert sheet.link_bytes_per_second is None or 50e9 <= sheet.link_bytes_per_second <= 1800e9


@pytest.mark.parametrize(
    "sheet", [sheet for sheet in datasheets().values() if sheet.key != "b200"], ids=lambda sheet: sheet.key
)
def test_ratios_between_formats_are_those_of_hardware(sheet):
    """Half the width is about twice the rate."""
    peaks = sheet.flops_per_second
    for form, (other, multiples) in RATIOS.items():
        if form in peaks and other in peaks:
            ratio = peaks[form] / peaks[other]
            assert any(times * 0.9 < ratio < times * 1.1 for times in multiples), (form, ratio)
    assert "bfloat16" not in peaks or peaks["bfloat16"] == peaks["float16"]


@pytest.mark.parametrize(("start", "times"), TENSOR.items())
def test_no_peak_of_a_tensor_core_counts_sparsity(start, times):
    generation = [sheet.flops_per_second for key, sheet in datasheets().items() if key.startswith(start)]
    ratios = [peaks["float16"] / peaks["float32"] for peaks in generation if "float16" in peaks]
    assert ratios == pytest.approx([times] * len(ratios), rel=0.03)
    assert ratios


@ALL
def test_flops_per_watt_and_per_byte_are_what_the_generation_reached(sheet):
    """A peak with sparsity, or power or bandwidth of another board, lies outside."""
    best = max(sheet.flops_per_second.values(), default=None)
    if best is None or sheet.power_watts is None:
        return
    most = {2014: 0.05e12, 2016: 0.08e12, 2018: 2e12, 2021: 2.6e12, 2025: 5e12}
    assert best / sheet.power_watts <= next(reached for year, reached in most.items() if sheet.year <= year)
    assert 15 < best / sheet.bandwidth_bytes_per_second < 900


def test_successors_have_more_bandwidth():
    for older, newer in itertools.pairwise(
        ("k80", "p100", "v100-16", "a100-40", "a100-80", "h100-sxm", "h200", "b200")
    ):
        assert datasheet(older).bandwidth_bytes_per_second < datasheet(newer).bandwidth_bytes_per_second
        assert datasheet(older).year <= datasheet(newer).year


@pytest.mark.parametrize("key", KNOWN)
def test_figures_that_many_tables_state_are_the_same_here(key):
    sheet = datasheet(key)
    figures = (
        sheet.flops_per_second["float32"] / 1e12,
        sheet.flops_per_second["float16"] / 1e12,
        sheet.bandwidth_bytes_per_second / 1e9,
        sheet.memory_bytes / 2**30,
        sheet.power_watts,
    )
    assert figures == pytest.approx(KNOWN[key])


def test_a_board_of_two_dies_is_two_devices_with_half_of_everything_each():
    sheet = datasheet("mi250x")
    assert sheet.devices_on_board == 2
    assert sheet.flops_per_second["bfloat16"] == pytest.approx(191.5e12)
    assert sheet.memory_bytes == 64 * 2**30
    assert sheet.power_watts == 280
    assert datasheet_flops_per_second("Tesla K80", "float32") == pytest.approx(4.365e12)


def test_an_unknown_key_suggests_the_nearest():
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
def test_boards_are_found_by_the_names_of_old_and_new_drivers(name, key):
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
def test_an_ambiguous_name_and_a_similar_board_have_no_datasheet(name):
    """The RTX 3080 with 10 and 12 GB, and an Apple chip with more or fewer GPU cores, have one name each."""
    assert datasheet_of(name) is None


@pytest.mark.parametrize(
    ("short", "name", "matches"),
    [
        ("a100", "NVIDIA A100-SXM4-80GB", True),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("rtx4090", "NVIDIA GeForce RTX 4090", True),
        ("4090", "NVIDIA GeForce RTX 4090", True),
        ("1g.10gb", "NVIDIA A100-SXM4-80GB MIG 1g.10gb", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("a10", "NVIDIA A100-SXM4-80GB", False),
        ("a100-40gb", "NVIDIA A100-SXM4-80GB", False),
        ("-", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_a_short_name_matches_whole_words_joined_or_not(short, name, matches):
    assert matches_model(short, name) is matches
