"""Pictures, texts and tables from anything that Hugging Face's `datasets` can load: local files, or a set of the hub.

The columns' types decide the inputs: pictures become bytes, texts become numbered words, numbers become one vector for
each row. `datasets` is an extra (`huggingface`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from hydra.utils import get_class
from torch import Tensor

from accelsweep.errors import InputError, nearest
from accelsweep.workloads.data_module import Delivery, FiniteData
from accelsweep.workloads.datasets import standardised
from accelsweep.workloads.training_stream import Items, Rows, Tensors

if TYPE_CHECKING:
    from PIL.Image import Image


# Pictures in files as tensors of bytes, of one size for a whole set.

MODES = {1: "L", 3: "RGB"}
"""Pillow's name for pictures of so many channels."""


def picture_bytes(picture: Image, channels: int, image_size: int | None) -> Tensor:
    """Return `picture` in uint8: (channels, image_size, image_size), or its own height and width where that is None.

    The shorter side is scaled to `image_size` and the middle is cut out. Raises InputError for other than 1 or 3
    channels.
    """
    if channels not in MODES:
        raise InputError(f"data.channels={channels}: pictures have 1 (grey) or 3 (colours)")
    picture = picture.convert(MODES[channels])
    if image_size is not None and picture.size != (image_size, image_size):
        scale = image_size / min(picture.size)
        width, height = (max(image_size, round(side * scale)) for side in picture.size)
        left, top = (width - image_size) // 2, (height - image_size) // 2
        picture = picture.resize((width, height)).crop((left, top, left + image_size, top + image_size))
    pixels = torch.from_numpy(np.array(picture, dtype=np.uint8))
    return pixels.reshape(*pixels.shape[:2], channels).permute(2, 0, 1).contiguous()


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


# Pictures with classes from any data set of torchvision: MNIST, CIFAR10, ImageFolder, ... as you have them on disk.


class TorchvisionData(FiniteData):
    """A set of pictures; with placement=resident or `in_memory` each is read once, otherwise again in each pass."""

    def __init__(
        self,
        dataset: str = "CIFAR10",
        root: str = "datasets",
        training: Mapping[str, Any] | None = None,
        validation: Mapping[str, Any] | None = None,
        download: bool = False,
        image_size: int | None = None,
        channels: int = 3,
        in_memory: bool = False,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`dataset` is a class of torchvision.datasets, or the import path of one that is like them.

        `training` and `validation` are its arguments after `root`; validation None holds out some training rows.
        """
        super().__init__(**delivery)
        self._dataset, self._root, self._download = dataset, root, download
        self._training, self._validation = dict(training or {}), validation
        self._image_size, self._channels, self._in_memory = image_size, channels, in_memory

    def prepare_data(self) -> None:
        """Download what is missing, if `download` says so."""
        if self._download:
            for arguments in (self._training, self._validation):
                if arguments is not None:
                    self._class()(self._root, **arguments, download=True)

    def read(self) -> tuple[Rows, Rows]:
        """Open the files. Raises InputError where torchvision or the class is missing, and the errors of the class."""
        if self._validation is None:
            return self.split(self._rows(self._training))
        return self._rows(self._training), self._rows(self._validation)

    def _rows(self, arguments: Mapping[str, Any]) -> Rows:
        items = Items(self._class()(self._root, **arguments), self._converted)
        return items.in_memory() if self._in_memory else items

    def _converted(self, item: Any) -> tuple[Tensor, Tensor]:
        picture, target = item
        return picture_bytes(picture, self._channels, self._image_size), torch.tensor(int(target))

    def _class(self) -> Any:
        if "." in self._dataset:
            return get_class(self._dataset)
        try:
            from torchvision import datasets
        except (ImportError, RuntimeError) as error:
            raise InputError(
                f"data=torchvision needs a torchvision that matches this torch {torch.__version__}, and there is none "
                f"({error}): install accelsweep's extra `torchvision`, or take data=huggingface"
            ) from error
        if not hasattr(datasets, self._dataset):
            near = nearest(self._dataset, dir(datasets))
            raise InputError(f"data.dataset={self._dataset} is no class of torchvision.datasets{near}")
        return getattr(datasets, self._dataset)
