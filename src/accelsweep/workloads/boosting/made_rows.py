"""Rows of any number that can be learnt: normal features, and a class that hangs on six of them, with noise.

The rule is the same in every run; the run's seed draws the rows. So the area under the curve says whether two settings
learn the same, and hardly moves with the seed.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from accelsweep.devices.memory_limits import FreeMemory
from accelsweep.errors import InputError
from accelsweep.workloads.data_module import DataOptions, FiniteData
from accelsweep.workloads.training_stream import Rows, TensorRows

DECISIVE = 6
"""Columns that the class hangs on; the others are noise."""
NOISE = 0.7
"""Deviation of what is added to the rule's value, which has a deviation of about 1.4 itself."""


class MadeRows(FiniteData):
    """`rows` to train on and `held_out` ones, of two classes."""

    def __init__(
        self, rows: int = 100_000, features: int = 20, held_out: int = 50_000, **delivery: Unpack[DataOptions]
    ) -> None:
        """`features` are the columns of a row, each 4 bytes. Raises InputError for fewer than decide its class."""
        super().__init__(**delivery)
        rows, features, held_out = _whole("rows", rows), _whole("features", features), _whole("held_out", held_out)
        if features < DECISIVE or rows < 2 or held_out < 0:
            raise InputError(
                f"data.rows={rows}, data.features={features}, data.held_out={held_out}: there must be 2 rows, "
                f"{DECISIVE} features and 0 held-out rows at least"
            )
        self._rows, self._features, self._held_out = rows, features, held_out

    @property
    def epoch_samples(self) -> int:
        """The rows to train on."""
        return self._rows

    def refuse_beyond(self, room: FreeMemory) -> None:
        """Raise MemoryError where the rows, and as much again for a library's own form of them, take more than `room`.

        Without it the operating system would choose what dies.
        """
        size = 4 * self._features * (self._rows + self._held_out)
        if 2 * size > room.bytes:
            raise MemoryError(
                f"data.rows={self._rows} of data.features={self._features} take {size / 1e9:.3g} GB, and as much again "
                f"in the library's form; {room.bytes / 1e9:.3g} GB are left to a rank ({room.limit}): lower data.rows"
            )

    def read(self) -> tuple[Rows, Rows]:
        """Draw the rows from the run's seed."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.randn((self._rows + self._held_out, self._features), generator=generator)
        noise = torch.randn(len(rows), generator=generator)
        classes = (_value(rows) + NOISE * noise > 0).long()
        here = self._rows
        return TensorRows(rows[:here], classes[:here]), TensorRows(rows[here:], classes[here:])


def _whole(key: str, value: float) -> int:
    """Return a number such as 1e6, which YAML and Hydra read as one with a point, as it is meant."""
    if value != int(value):
        raise InputError(f"data.{key}={value}: must be a whole number")
    return int(value)


def _value(rows: Tensor) -> Tensor:
    """Return the rule's value (rows,): products, a wave, a bend and a switch, which no single split finds."""
    a, b, c, d, e, f = rows[:, :DECISIVE].unbind(1)
    return a * b + torch.sin(3 * c) + d.abs() - 0.8 + 0.5 * e * (f > 0)
