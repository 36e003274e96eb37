"""Utilisation against both peaks, and the datasheets' table."""

import pytest

from accelsweep.devices.datasheets import datasheet_flops_per_second
from accelsweep.measure.flops import Ceiling, utilisation_metrics

H100 = "NVIDIA H100 80GB HBM3"


def test_utilisation_is_the_models_operations_over_the_peak_of_all_devices():
    found = utilisation_metrics(1e9, Ceiling(400e12, 8192), 200_000.0, (H100, H100), "bfloat16")
    assert found["model_flops_per_second"].value == pytest.approx(200e12)
    assert found["mfu"].value == pytest.approx(200 / 800)
    assert found["mfu_of_datasheet"].value == pytest.approx(200 / (2 * 989.4))
    assert "bfloat16" in found["mfu"].scope


def test_what_is_missing_is_named_by_its_reason():
    found = utilisation_metrics("not counted: why", Ceiling(1e12, 512), 10.0, ("Some CPU",), "float32")
    assert {found[name].reason for name in ("model_flops_per_sample", "model_flops_per_second", "mfu")} == {
        "not counted: why"
    }
    assert found["matmul_ceiling_flops_per_second"].value == 1e12
    found = utilisation_metrics(1e6, "no matmul", 10.0, ("Some CPU",), "float32")
    assert found["mfu"].reason == "no matmul"
    assert found["mfu_of_datasheet"].reason == "no datasheet's dense peak is known for Some CPU in float32"


def test_a_share_of_more_than_all_is_withheld():
    found = utilisation_metrics(1e9, Ceiling(1e12, 512), 2000.0, ("Some CPU",), "float32")
    assert "disturbed" in found["mfu"].reason


@pytest.mark.parametrize(
    ("name", "form", "tera"),
    [
        (H100, "float32", 66.9),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA A100-SXM4-80GB", "float16", 312.0),
        ("NVIDIA A100-PCIE-40GB", "float32", 19.5),
        ("NVIDIA A100 80GB PCIe", "bfloat16", 312.0),
        ("NVIDIA H200 NVL", "bfloat16", 835.5),
        ("NVIDIA GH200 480GB", "tf32", 494.5),
    ],
)
def test_the_table_knows_the_boards_by_the_names_that_they_give_themselves(name, form, tera):
    assert datasheet_flops_per_second(name, form) == tera * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A1000 Laptop GPU",
        "NVIDIA H100 64GB HBM3",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM-64GB",
    ],
)
def test_a_device_whose_name_only_resembles_a_listed_board_has_no_peak(name):
    """Other models, boards with other clocks, and slices of a board."""
    assert datasheet_flops_per_second(name, "bfloat16") is None


def test_a_device_or_format_without_a_sheet_has_no_peak():
    assert datasheet_flops_per_second("NVIDIA H100 NVL 2g", "bfloat16") is None
    assert datasheet_flops_per_second("Tesla T4", "bfloat16") is None
    assert datasheet_flops_per_second("Intel Xeon", "float32") is None
