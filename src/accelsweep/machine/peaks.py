"""Dense peaks from the makers' datasheets, for the share of them that a training reaches. An unlisted model has none.

Figures are TFLOP/s without sparsity at boost clocks. They come from NVIDIA's datasheets "A100 Tensor Core GPU" (2020),
"H100 Tensor Core GPU" (2022) and "H200 Tensor Core GPU" (2023). The latter two print figures with sparsity, which are
halved here. A processor has no entry: its makers print no such number.
"""

from __future__ import annotations

import re

_A100 = {"float32": 19.5, "tf32": 156.0, "bfloat16": 312.0, "float16": 312.0}
_SHEETS: tuple[tuple[tuple[str, ...], dict[str, float]], ...] = (
    (("H200",), {"float32": 67.0, "tf32": 494.5, "bfloat16": 989.5, "float16": 989.5}),
    (("H100", "PCIE"), {"float32": 51.2, "tf32": 378.0, "bfloat16": 756.0, "float16": 756.0}),
    (("H100", "HBM3"), {"float32": 66.9, "tf32": 494.7, "bfloat16": 989.4, "float16": 989.4}),
    (("A100", "SXM4"), _A100),
    (("A100", "PCIE"), _A100),
)
"""Whole words of a device's name, and its peaks by format. The SXM board of the H100 calls itself `HBM3`."""

_OTHERS = frozenset({"MIG", "NVL"})
"""Words of names that no row above covers: a slice of a board, and boards that the sheets list apart."""


def datasheet_flops_per_second(device_name: str, number_format: str) -> float | None:
    """Return the dense peak of the device that CUDA calls `device_name`, or None where no sheet is known.

    `number_format` is `float32`, `tf32`, `bfloat16` or `float16`.
    """
    named = set(re.findall(r"[A-Z0-9]+", device_name.upper()))
    for words, peaks in _SHEETS:
        if named.issuperset(words) and not named & _OTHERS:
            return peaks[number_format] * 1e12 if number_format in peaks else None
    return None
