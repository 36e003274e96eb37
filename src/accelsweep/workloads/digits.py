"""Real data without a download: the handwritten digits that scikit-learn ships.

1797 images of 8x8 pixels in 10 classes. They are a copy of the test set of E. Alpaydin and C. Kaynak's "Optical
Recognition of Handwritten Digits" (UCI). The file is read directly, because importing scikit-learn takes longer than
training here.
"""

from __future__ import annotations

import gzip

import numpy as np
import torch
from torch import Tensor

from accelsweep.workloads.loading.finite import FiniteData
from accelsweep.workloads.loading.rows import Rows, Tensors
from accelsweep.workloads.loading.shipped import shipped_file


def read_digits() -> tuple[Tensor, Tensor]:
    """Return images (1797, 1, 8, 8) in uint8, 0 to 16, and classes (1797,) in int64."""
    with gzip.open(shipped_file("digits.csv.gz"), "rt", encoding="ascii") as file:
        table = np.array([line.split(",") for line in file], dtype=np.float32)
    images = torch.from_numpy(table[:, :64].astype(np.uint8)).reshape(-1, 1, 8, 8)
    return images.contiguous(), torch.from_numpy(table[:, 64].astype(np.int64))


class Digits(FiniteData):
    """Handwritten digits; `validation_share` of the rows, or one fold of them, are held out."""

    full_scale = 16.0

    def read(self) -> tuple[Rows, Rows]:
        """Read the file and split it."""
        return self.split(Tensors(*read_digits()))
