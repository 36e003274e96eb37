"""Pictures, texts and tables from anything that Hugging Face's `datasets` can load: local files, or a set of the hub.

The columns' types decide the inputs: pictures become bytes, texts become numbered words, numbers become one vector for
each row. `datasets` is an extra (`huggingface`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from accelsweep.base.errors import InputError, nearest
from accelsweep.workloads.loading.finite import Delivery, FiniteData
from accelsweep.workloads.loading.pictures import picture_bytes
from accelsweep.workloads.loading.rows import Items, Rows, Tensors
from accelsweep.workloads.tables import standardised


class HuggingFaceData(FiniteData):
    """A set with columns, one or several of which are the inputs, and one the class."""

    def __init__(
        self,
        path: str,
        inputs: str | Sequence[str] = "image",
        target: str = "label",
        load: Mapping[str, Any] | None = None,
        training: str = "train",
        validation: str | None = None,
        image_size: int | None = None,
        channels: int = 3,
        in_memory: bool = False,
        sequence: int = 200,
        vocabulary: int = 20_000,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`path` and `load` are the arguments of `datasets.load_dataset`, `training` and `validation` its splits.

        validation None holds out some training rows. Pictures use `image_size`, `channels` and `in_memory` (read once,
        not again in each pass), texts `sequence` and `vocabulary`.
        """
        super().__init__(**delivery)
        self._path, self._load = path, dict(load or {})
        self._training, self._validation = training, validation
        self._inputs, self._target = [inputs] if isinstance(inputs, str) else list(inputs), target
        self._image_size, self._channels, self._in_memory = image_size, channels, in_memory
        self._sequence, self._vocabulary = sequence, vocabulary

    def prepare_data(self) -> None:
        """Download or convert the files into the cache of `datasets`, which later loads read."""
        for split in filter(None, (self._training, self._validation)):
            self._table(split)

    def read(self) -> tuple[Rows, Rows]:
        """Open the splits. Raises InputError where a column is missing or of no use, and the errors of `datasets`."""
        tables = [self._table(split) for split in filter(None, (self._training, self._validation))]
        number = _numbering(tables, self._target)
        rows = [self._rows(table, number) for table in tables]
        training, validation = self.split(rows[0]) if len(rows) == 1 else rows
        if isinstance(training, Tensors) and isinstance(validation, Tensors):
            return (
                standardised(training, validation)
                if training.tensors[0].is_floating_point()
                else (training, validation)
            )
        return training, validation

    def _table(self, split: str) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise InputError(
                "data=huggingface needs the package datasets (accelsweep's extra `huggingface`)"
            ) from error
        table = datasets.load_dataset(self._path, split=split, **self._load)
        wanted = [*self._inputs, self._target]
        for column in wanted:
            if column not in table.column_names:
                near = nearest(column, table.column_names)
                raise InputError(
                    f"data: {self._path} has no column {column!r}{near}; it has {', '.join(table.column_names)}"
                )
        return table.select_columns(wanted)

    def _rows(self, table: Any, number: Mapping[Any, int]) -> Rows:
        kinds = {_kind(table.features[column]) for column in self._inputs}
        if len(self._inputs) > 1 and kinds != {"numbers"}:
            names = ",".join(map(str, self._inputs))
            raise InputError(f"data.inputs=[{names}]: several columns must all be numbers; of others name one")
        if kinds == {"pictures"}:
            items = Items(table, lambda item: self._picture(item, number))
            return items.in_memory() if self._in_memory else items
        targets = torch.tensor([number[value] for value in table[self._target]])
        if kinds == {"texts"}:
            return Tensors(numbered_words(table[self._inputs[0]], self._sequence, self._vocabulary), targets)
        columns = table.select_columns(self._inputs).with_format("numpy")[:]
        vectors = np.column_stack([columns[name] for name in self._inputs]).astype(np.float32)
        return Tensors(torch.from_numpy(vectors), targets)

    def _picture(self, item: Mapping[str, Any], number: Mapping[Any, int]) -> tuple[Tensor, Tensor]:
        picture = picture_bytes(item[self._inputs[0]], self._channels, self._image_size)
        return picture, torch.tensor(number[item[self._target]])


def _kind(feature: Any) -> str:
    """Return the content of a column of this type: `pictures`, `texts`, or else `numbers`."""
    if type(feature).__name__ == "Image":
        return "pictures"
    return "texts" if getattr(feature, "dtype", "") in ("string", "large_string") else "numbers"


def numbered_words(texts: Iterable[str], sequence: int, vocabulary: int) -> Tensor:
    """Return the first `sequence` words of each text as numbers below `vocabulary`: int64 (texts, sequence), 0 behind.

    A word's number is a hash of its lower case, so there is nothing to learn or download, and some words share one
    (K. Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", 2009).
    """
    numbers: dict[str, int] = {}
    rows = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())[:sequence]
        row = [numbers.setdefault(word, 1 + zlib.crc32(word.encode()) % (vocabulary - 1)) for word in words]
        rows.append(row + [0] * (sequence - len(row)))
    return torch.tensor(rows)


def _numbering(tables: Sequence[Any], target: str) -> dict[Any, int]:
    """Return the number of each class that occurs: itself if it is an integer, otherwise its place in order.

    `model.classes` counts an integer's gaps too. Raises InputError for a value that is no class, such as the -1 of a
    test set whose classes are not published.
    """
    found = {value for table in tables for value in table.unique(target)}
    if None in found:
        raise InputError(f"data.target={target}: some rows have no class; name a split or a file without them")
    values = sorted(found)
    if values and isinstance(values[0], int):
        if values[0] < 0:
            raise InputError(
                f"data.target={target} holds {values[0]}, which is no class: integers count from 0; renumber the "
                "column. Or make it strings, which are numbered in order, or name a split or a file without such rows"
            )
        return {value: int(value) for value in values}
    if values and not isinstance(values[0], str):
        dtype = tables[0].features[target].dtype
        raise InputError(f"data.target={target} holds {dtype}, which is no class: use integers or strings")
    return {value: place for place, value in enumerate(values)}
