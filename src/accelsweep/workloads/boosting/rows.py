"""The rows of any data set as matrices for a library of trees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from torch import Tensor

from accelsweep.devices.memory_limits import FreeMemory
from accelsweep.errors import InputError
from accelsweep.workloads.boosting.booster import Features, Labels
from accelsweep.workloads.boosting.made_rows import MadeRows
from accelsweep.workloads.data_module import FiniteData
from accelsweep.workloads.training_stream import Rows, TensorRows


class LabelledRows(NamedTuple):
    """Features (rows, columns) in float32 and classes (rows,) in int64."""

    features: Features
    labels: Labels

    def share(self, rank: int, size: int) -> LabelledRows:
        """Return every `size`-th row, from the `rank`-th on."""
        return self if size == 1 else LabelledRows(self.features[rank::size].copy(), self.labels[rank::size].copy())


class RowSets(NamedTuple):
    """The rows to train on, those that are held out (None: there are none), and the number of classes of both."""

    training: LabelledRows
    held_out: LabelledRows | None
    classes: int


def sets_of(data: pl.LightningDataModule, room: FreeMemory) -> RowSets:
    """Read a data module's training and validation rows, once.

    Sets of ours are asked for their rows. Any other module is asked for one pass of its loaders, whose batches begin
    with features and classes. Raises MemoryError for made rows that do not fit into `room`, and InputError for rows
    without classes.
    """
    if isinstance(data, MadeRows):
        data.refuse_beyond(room)
    held_out: LabelledRows | None
    if isinstance(data, FiniteData):
        training, held_out = map(_whole, data.read())
    else:
        data.setup("fit")
        training, held_out = _passed(data.train_dataloader()), _validation(data)
    labels = [rows.labels for rows in (training, held_out) if rows is not None and len(rows.labels)]
    classes = max((int(each.max()) + 1 for each in labels), default=0)
    if classes < 2 or min(int(each.min()) for each in labels) < 0:
        raise InputError("task=boosting needs two classes or more, numbered 0, 1, ...; choose another column of labels")
    return RowSets(training, held_out if held_out is not None and len(held_out.labels) else None, classes)


def _whole(rows: Rows) -> LabelledRows:
    parts = rows.tensors if isinstance(rows, TensorRows) else rows.take(torch.arange(len(rows)))
    return _labelled(*parts[:2])


def _validation(data: pl.LightningDataModule) -> LabelledRows | None:
    if type(data).val_dataloader is pl.LightningDataModule.val_dataloader:
        return None
    return _passed(data.val_dataloader())


def _passed(loader: Iterable[Any]) -> LabelledRows:
    try:
        len(loader)  # type: ignore[arg-type]
    except TypeError:
        raise InputError("task=boosting needs all rows at once, and the data is a stream without an end") from None
    batches = [batch[:2] for batch in loader if isinstance(batch, list | tuple) and len(batch) > 1]
    if not batches:
        raise InputError("task=boosting needs batches that begin with features and classes; the data gives none")
    features, labels = zip(*batches, strict=True)
    return _labelled(torch.cat(features), torch.cat(labels))


def _labelled(features: Tensor, labels: Tensor) -> LabelledRows:
    if labels.is_floating_point() or labels.dim() != 1:
        raise InputError(
            f"task=boosting learns one class a row, an integer; the data gives {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    columns = features.flatten(1) if features.dim() > 1 else features[:, None]
    return LabelledRows(columns.float().numpy(), labels.long().numpy())
