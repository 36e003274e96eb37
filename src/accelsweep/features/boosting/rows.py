"""Converts the rows of any data set to matrices for a tree library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Unpack

import lightning.pytorch as pl
import torch
from torch import Tensor

from accelsweep.devices.memory_limits import FreeMemory
from accelsweep.errors import InputError
from accelsweep.features.boosting.boosters import Features, Labels
from accelsweep.workloads.data_module import DataOptions, FiniteData
from accelsweep.workloads.training_stream import Rows, TensorRows

RELEVANT_COLUMNS = 6
"""The number of columns that determine the class; the others are noise."""

NOISE = 0.7
"""Standard deviation of the noise added to the classification rule's value, whose standard deviation is about 1.4."""


class MadeRows(FiniteData):
    """Synthetic rows of two classes: normally distributed features, some of which determine the class, plus noise."""

    def __init__(
        self, rows: int = 100_000, features: int = 20, held_out: int = 50_000, **delivery: Unpack[DataOptions]
    ) -> None:
        """`features` is the number of columns, 4 bytes each. Raises InputError if there are too few."""
        super().__init__(**delivery)
        rows, features, held_out = (
            _whole_number("rows", rows),
            _whole_number("features", features),
            _whole_number("held_out", held_out),
        )
        if features < RELEVANT_COLUMNS or rows < 2 or held_out < 0:
            raise InputError(
                f"data.rows={rows}, data.features={features}, data.held_out={held_out}: at least 2 rows, "
                f"{RELEVANT_COLUMNS} features and 0 held-out rows are required"
            )
        self._rows, self._features, self._held_out = rows, features, held_out

    @property
    def epoch_samples(self) -> int:
        """The number of training rows."""
        return self._rows

    def refuse_beyond(self, room: FreeMemory) -> None:
        """Raise MemoryError if the rows plus a copy in the library's format exceed `room`.

        Otherwise the kernel's OOM killer would choose which process to kill.
        """
        size = 4 * self._features * (self._rows + self._held_out)
        if 2 * size > room.bytes:
            raise MemoryError(
                f"data.rows={self._rows} of data.features={self._features} take {size / 1e9:.3g} GB, and as much again "
                f"in the library's format; {room.bytes / 1e9:.3g} GB are free per rank ({room.limit}): lower data.rows"
            )

    def read(self) -> tuple[Rows, Rows]:
        """Generate the rows from the run's seed."""
        generator = torch.Generator().manual_seed(self.seed)
        rows = torch.randn((self._rows + self._held_out, self._features), generator=generator)
        noise = torch.randn(len(rows), generator=generator)
        classes = (_value(rows) + NOISE * noise > 0).long()
        count = self._rows
        return TensorRows(rows[:count], classes[:count]), TensorRows(rows[count:], classes[count:])


def _whole_number(key: str, value: float) -> int:
    """Return a number such as 1e6, which YAML and Hydra parse as a float, as an int."""
    if value != int(value):
        raise InputError(f"data.{key}={value}: must be a whole number")
    return int(value)


def _value(rows: Tensor) -> Tensor:
    """Return the classification rule's value (rows,), a nonlinear function that no single split can capture."""
    a, b, c, d, e, f = rows[:, :RELEVANT_COLUMNS].unbind(1)
    return a * b + torch.sin(3 * c) + d.abs() - 0.8 + 0.5 * e * (f > 0)


class LabelledRows(NamedTuple):
    """Features (rows, columns) in float32 and classes (rows,) in int64."""

    features: Features
    labels: Labels

    def share(self, rank: int, size: int) -> LabelledRows:
        """Return every `size`-th row, starting with row `rank`."""
        return self if size == 1 else LabelledRows(self.features[rank::size].copy(), self.labels[rank::size].copy())


class RowSets(NamedTuple):
    """Training rows, held-out rows if there are any, and the number of classes."""

    training: LabelledRows
    held_out: LabelledRows | None
    classes: int


def sets_of(data: pl.LightningDataModule, room: FreeMemory) -> RowSets:
    """Read a data module's training and validation rows.

    Our data modules return all rows at once. The loaders of other data modules are read once; each batch must start
    with features and classes. Raises MemoryError if synthetic rows do not fit into `room`, and InputError if rows have
    no classes.
    """
    if isinstance(data, MadeRows):
        data.refuse_beyond(room)
    held_out: LabelledRows | None
    if isinstance(data, FiniteData):
        training, held_out = map(_whole, data.read())
    else:
        data.setup("fit")
        training, held_out = _read_loader(data.train_dataloader()), _validation(data)
    labels = [rows.labels for rows in (training, held_out) if rows is not None and len(rows.labels)]
    classes = max((int(part.max()) + 1 for part in labels), default=0)
    if classes < 2 or min(int(part.min()) for part in labels) < 0:
        raise InputError("task=boosting needs at least two classes, numbered 0, 1, ...; choose another label column")
    return RowSets(training, held_out if held_out is not None and len(held_out.labels) else None, classes)


def _whole(rows: Rows) -> LabelledRows:
    parts = rows.tensors if isinstance(rows, TensorRows) else rows.take(torch.arange(len(rows)))
    return _labelled(*parts[:2])


def _validation(data: pl.LightningDataModule) -> LabelledRows | None:
    if type(data).val_dataloader is pl.LightningDataModule.val_dataloader:
        return None
    return _read_loader(data.val_dataloader())


def _read_loader(loader: Iterable[Any]) -> LabelledRows:
    try:
        len(loader)  # type: ignore[arg-type]
    except TypeError:
        raise InputError("task=boosting needs all rows at once, but the data set is an endless stream") from None
    batches = [batch[:2] for batch in loader if isinstance(batch, list | tuple) and len(batch) > 1]
    if not batches:
        raise InputError("task=boosting needs batches that start with features and classes; the data set yields none")
    features, labels = zip(*batches, strict=True)
    return _labelled(torch.cat(features), torch.cat(labels))


def _labelled(features: Tensor, labels: Tensor) -> LabelledRows:
    if labels.is_floating_point() or labels.dim() != 1:
        raise InputError(
            f"task=boosting needs one integer class per row; the data set yields {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    columns = features.flatten(1) if features.dim() > 1 else features[:, None]
    return LabelledRows(columns.float().numpy(), labels.long().numpy())
