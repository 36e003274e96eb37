"""Tables without a download: those of scikit-learn's that have classes.

`wine` (178 samples, 13 columns, 3 classes; M. Forina et al., UCI), `breast_cancer` (569, 30, 2; W. Wolberg et al., UCI)
and `iris` (150, 4, 3; R. Fisher 1936). The files are read directly, because importing scikit-learn takes a second.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from accelsweep.base.errors import InputError, nearest
from accelsweep.workloads.loading.finite import Delivery, FiniteData
from accelsweep.workloads.loading.rows import Rows, Tensors
from accelsweep.workloads.loading.shipped import shipped_file

FILES = {"wine": "wine_data.csv", "breast_cancer": "breast_cancer.csv", "iris": "iris.csv"}
"""scikit-learn's name of each table, and its file."""


def read_table(name: str) -> tuple[Tensor, Tensor]:
    """Return columns (samples, features) in float32 and classes (samples,) in int64. Raises InputError."""
    if name not in FILES:
        raise InputError(f"data.table={name} is none of {', '.join(FILES)}{nearest(name, FILES)}")
    table = np.loadtxt(shipped_file(FILES[name]), delimiter=",", skiprows=1, dtype=np.float64)
    return torch.from_numpy(table[:, :-1].astype(np.float32)), torch.from_numpy(table[:, -1].astype(np.int64))


class Table(FiniteData):
    """A table whose columns are shifted and scaled so that those of the training rows have mean 0 and deviation 1."""

    def __init__(self, table: str = "wine", **delivery: Unpack[Delivery]) -> None:
        """`table` is scikit-learn's name."""
        super().__init__(**delivery)
        self._table = table

    def read(self) -> tuple[Rows, Rows]:
        """Read the file, split it and standardise the columns."""
        columns, classes = read_table(self._table)
        training, validation = self.split(Tensors(columns, classes))
        return standardised(training, validation)


def standardised(training: Tensors, validation: Tensors) -> tuple[Tensors, Tensors]:
    """Return both sets with columns shifted and scaled by the training rows' mean and deviation (1 where it is 0)."""
    columns, *_ = training.tensors
    mean, deviation = columns.mean(dim=0), columns.std(dim=0, correction=0)
    deviation = torch.where(deviation == 0, torch.ones_like(deviation), deviation)

    def scaled(rows: Tensors) -> Tensors:
        return Tensors((rows.tensors[0] - mean) / deviation, *rows.tensors[1:])

    return scaled(training), scaled(validation)
