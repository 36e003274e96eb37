"""Images, texts and tables that Hugging Face's `datasets` can load, and torchvision's image data sets.

`datasets` and `torchvision` are installed by extras with the same names as the data groups, and imported on first use.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from accelsweep.errors import InputError, nearest
from accelsweep.workloads.data_module import DataOptions, FiniteData
from accelsweep.workloads.datasets import standardize
from accelsweep.workloads.targets import locate
from accelsweep.workloads.training_stream import LazyRows, Rows, TensorRows

if TYPE_CHECKING:
    from PIL.Image import Image

PILLOW_MODES = {1: "L", 3: "RGB"}
"""Number of channels -> Pillow's mode for such images."""


def image_to_tensor(image: Image, channels: int, image_size: int | None) -> Tensor:
    """Return `image` as uint8 (channels, height, width).

    The shorter side is scaled to `image_size` and the centre is cropped to a square; if `image_size` is None, the image
    keeps its size. Raises InputError unless `channels` is 1 or 3.
    """
    if channels not in PILLOW_MODES:
        raise InputError(f"data.channels={channels}: images have 1 channel (greyscale) or 3 (colour)")
    image = image.convert(PILLOW_MODES[channels])
    if image_size is not None and image.size != (image_size, image_size):
        scale = image_size / min(image.size)
        width, height = (max(image_size, round(side * scale)) for side in image.size)
        left, top = (width - image_size) // 2, (height - image_size) // 2
        image = image.resize((width, height)).crop((left, top, left + image_size, top + image_size))
    pixels = torch.from_numpy(np.array(image, dtype=np.uint8))
    return pixels.reshape(*pixels.shape[:2], channels).permute(2, 0, 1).contiguous()


class HuggingFaceData(FiniteData):
    """A data set with one or more input columns and a class column.

    How columns are converted depends on their types: images become bytes, texts become hashed words, and numbers become
    one vector per row.
    """

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
        **options: Unpack[DataOptions],
    ) -> None:
        """`path` and `load` are passed to `datasets.load_dataset`; `training` and `validation` are names of splits.

        If `validation` is None, some training rows are held out. Images use `image_size`, `channels` and `in_memory`
        (read once instead of in each pass); texts use `sequence` and `vocabulary`.
        """
        super().__init__(**options)
        self._path, self._load = path, dict(load or {})
        self._splits = [split for split in (training, validation) if split]
        self._inputs, self._target = [inputs] if isinstance(inputs, str) else list(inputs), target
        self._image_size, self._channels, self._in_memory = image_size, channels, in_memory
        self._sequence, self._vocabulary = sequence, vocabulary

    def prepare_data(self) -> None:
        """Download or convert the files into the cache of `datasets`, which later loads read from."""
        for split in self._splits:
            self._table(split)

    def read(self) -> tuple[Rows, Rows]:
        """Open the splits. Raises InputError if a column is missing or unusable, and errors from `datasets`."""
        tables = [self._table(split) for split in self._splits]
        indices = _class_indices(tables, self._target)
        rows = [self._rows(table, indices) for table in tables]
        training, validation = self.split(rows[0]) if len(rows) == 1 else rows
        if (
            isinstance(training, TensorRows)
            and isinstance(validation, TensorRows)
            and training.tensors[0].is_floating_point()
        ):
            return standardize(training, validation)
        return training, validation

    def _table(self, split: str) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise InputError(
                "data=huggingface needs the package datasets (accelsweep's extra `huggingface`)"
            ) from error
        table = datasets.load_dataset(self._path, split=split, **self._load)
        columns = [*self._inputs, self._target]
        for column in columns:
            if column not in table.column_names:
                near = nearest(column, table.column_names)
                raise InputError(
                    f"data: {self._path} has no column {column!r}{near}; it has {', '.join(table.column_names)}"
                )
        return table.select_columns(columns)

    def _rows(self, table: Any, indices: Mapping[Any, int]) -> Rows:
        kinds = {_column_kind(table.features[column]) for column in self._inputs}
        if len(self._inputs) > 1 and kinds != {"numbers"}:
            names = ",".join(map(str, self._inputs))
            raise InputError(
                f"data.inputs=[{names}]: several columns must all be numeric; name a single column of images or texts"
            )
        if kinds == {"images"}:

            def convert(item: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
                image = image_to_tensor(item[self._inputs[0]], self._channels, self._image_size)
                return image, torch.tensor(indices[item[self._target]])

            images = LazyRows(table, convert)
            return images.load() if self._in_memory else images
        targets = torch.tensor([indices[value] for value in table[self._target]])
        if kinds == {"texts"}:
            return TensorRows(hash_words(table[self._inputs[0]], self._sequence, self._vocabulary), targets)
        columns = table.select_columns(self._inputs).with_format("numpy")[:]
        vectors = np.column_stack([columns[name] for name in self._inputs]).astype(np.float32)
        return TensorRows(torch.from_numpy(vectors), targets)


def _column_kind(feature: Any) -> str:
    if type(feature).__name__ == "Image":
        return "images"
    return "texts" if getattr(feature, "dtype", "") in ("string", "large_string") else "numbers"


def hash_words(texts: Iterable[str], sequence: int, vocabulary: int) -> Tensor:
    """Return the first `sequence` words of each text as numbers below `vocabulary`: int64 (texts, sequence).

    Short texts are padded with 0. A word's number is a hash of its lower-case form, so no vocabulary is learned or
    downloaded, and some words share a number (K. Weinberger et al., "Feature Hashing for Large Scale Multitask
    Learning", 2009).
    """
    numbers: dict[str, int] = {}
    rows = []
    for text in texts:
        words = re.findall(r"\w+", text.lower())[:sequence]
        row = [numbers.setdefault(word, 1 + zlib.crc32(word.encode()) % (vocabulary - 1)) for word in words]
        rows.append(row + [0] * (sequence - len(row)))
    return torch.tensor(rows)


def _class_indices(tables: Sequence[Any], target: str) -> dict[Any, int]:
    """Return the index of each class that occurs: its value if that is an integer, else its position in sorted order.

    `model.classes` must therefore include the gaps between integers. Raises InputError for a value that is not a class,
    such as -1 in a test set whose classes are not published.
    """
    occurring = {value for table in tables for value in table.unique(target)}
    if None in occurring:
        raise InputError(f"data.target={target}: some rows have no class; choose a split or a file without such rows")
    values = sorted(occurring)
    if values and isinstance(values[0], int):
        if values[0] < 0:
            raise InputError(
                f"data.target={target} contains {values[0]}, which is not a class: integers start at 0; renumber the "
                "column, convert it to strings, which are numbered in order, or choose a split or a file without such "
                "rows"
            )
        return {value: int(value) for value in values}
    if values and not isinstance(values[0], str):
        dtype = tables[0].features[target].dtype
        raise InputError(f"data.target={target} contains {dtype}, which cannot be a class: use integers or strings")
    return {value: index for index, value in enumerate(values)}


class TorchvisionData(FiniteData):
    """A torchvision image data set, read once with placement=resident or `in_memory`, otherwise in each pass."""

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
        **options: Unpack[DataOptions],
    ) -> None:
        """`dataset` is a class in torchvision.datasets, or the import path of a class with the same interface.

        `training` and `validation` are the arguments passed to it after `root`; if `validation` is None, some training
        rows are held out.
        """
        super().__init__(**options)
        self._dataset, self._root, self._download = dataset, root, download
        self._training, self._validation = dict(training or {}), validation
        self._image_size, self._channels, self._in_memory = image_size, channels, in_memory

    def prepare_data(self) -> None:
        """Download missing files if `download` is set."""
        if self._download:
            for arguments in (self._training, self._validation):
                if arguments is not None:
                    self._class()(self._root, **arguments, download=True)

    def read(self) -> tuple[Rows, Rows]:
        """Open the files. Raises InputError if torchvision or the class is missing, and errors from the class."""
        if self._validation is None:
            return self.split(self._rows(self._training))
        return self._rows(self._training), self._rows(self._validation)

    def _rows(self, arguments: Mapping[str, Any]) -> Rows:
        images = LazyRows(self._class()(self._root, **arguments), self._convert)
        return images.load() if self._in_memory else images

    def _convert(self, item: Any) -> tuple[Tensor, Tensor]:
        image, target = item
        return image_to_tensor(image, self._channels, self._image_size), torch.tensor(int(target))

    def _class(self) -> Any:
        if "." in self._dataset:
            return locate(self._dataset)
        try:
            from torchvision import datasets
        except (ImportError, RuntimeError) as error:
            raise InputError(
                f"data=torchvision needs a torchvision that matches torch {torch.__version__}, and none was found "
                f"({error}): install accelsweep's extra `torchvision`, or use data=huggingface"
            ) from error
        if not hasattr(datasets, self._dataset):
            near = nearest(self._dataset, dir(datasets))
            raise InputError(f"data.dataset={self._dataset} is not a class in torchvision.datasets{near}")
        return getattr(datasets, self._dataset)
