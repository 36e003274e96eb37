"""A short word means a device where each of its words stands in the device's name."""

import pytest

from accelsweep.devices.datasheets import meant


@pytest.mark.parametrize(
    ("short", "name", "is_meant"),
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
def test_words_are_compared_whole_and_a_name_may_be_written_as_one(short: str, name: str, is_meant: bool) -> None:
    assert meant(short, name) is is_meant
