"""The built-in data sets: MNIST and CIFAR-10 from files, scikit-learn's data sets, and random data of any shape.

None of them downloads anything. MNIST (Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits")
and CIFAR-10 (A. Krizhevsky, 2009) are read from their authors' files, in the folders used by torchvision, but without
torchvision. A pickle can execute arbitrary code, so CIFAR-10's pickles are never loaded: the bytes and numbers are
extracted from the list of opcodes. scikit-learn's files are read without importing scikit-learn.
"""

from __future__ import annotations

import gzip
import itertools
import pickletools  # nosec B403
import struct
import zlib
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.workloads.data_module import VALIDATION_BATCH, DataOptions, FiniteData
from accelsweep.workloads.training_stream import Rows, TensorRows, rank_and_size

CIFAR_SHAPE = (3, 32, 32)

CIFAR_BYTES = prod(CIFAR_SHAPE)


class ImageFiles(FiniteData):
    """A data set read from files under `root`.

    The held-out images are the test images or a fold of the training images.
    """

    def __init__(self, root: str = "datasets", **options: Unpack[DataOptions]) -> None:
        """`root` is the folder that would be passed to torchvision's classes."""
        super().__init__(**options)
        self._root = Path(root)

    def read(self) -> tuple[Rows, Rows]:
        """Read the files. Raises Unsupported if they are missing, InputError if they are damaged."""
        training = TensorRows(*self.load("training"))
        return (training, TensorRows(*self.load("test"))) if self._folds is None else self.split(training)

    def load(self, part: str) -> tuple[Tensor, Tensor]:
        """Return images (uint8, (samples, channels, height, width)) and classes (int64) for `training` or `test`."""
        raise NotImplementedError(f"{type(self).__name__} does not define its files")


class Mnist(ImageFiles):
    """MNIST, or a set in the same file format: FashionMNIST, KMNIST."""

    def __init__(self, dataset: str = "MNIST", root: str = "datasets", **options: Unpack[DataOptions]) -> None:
        """`dataset` is the set's folder under `root`, whose subfolder `raw` contains four files, gzipped or not."""
        super().__init__(root, **options)
        self._folder = self._root / dataset / "raw"

    def load(self, part: str) -> tuple[Tensor, Tensor]:
        """Return the images (samples, 1, height, width) and their classes."""
        name = {"training": "train", "test": "t10k"}[part]
        images = read_idx(_existing_file(self._folder, f"{name}-images-idx3-ubyte"), dimensions=3)
        classes = read_idx(_existing_file(self._folder, f"{name}-labels-idx1-ubyte"), dimensions=1)
        return _as_tensors(images[:, None], classes, self._folder)


class Cifar10(ImageFiles):
    """CIFAR-10: the binary version in `cifar-10-batches-bin`, or else the Python version in `cifar-10-batches-py`."""

    def load(self, part: str) -> tuple[Tensor, Tensor]:
        """Return the images (samples, 3, 32, 32) and their classes."""
        names = [f"data_batch_{number}" for number in range(1, 6)] if part == "training" else ["test_batch"]
        binary, python = self._root / "cifar-10-batches-bin", self._root / "cifar-10-batches-py"
        if binary.is_dir():
            batches = [_read_cifar_binary(_existing_file(binary, f"{name}.bin")) for name in names]
        else:
            batches = [_read_cifar_pickle(_existing_file(python, name)) for name in names]
        images, classes = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
        return _as_tensors(images.reshape(-1, *CIFAR_SHAPE), classes, self._root)


def read_idx(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return an idx file's bytes as an array of the shape it declares. Raises InputError for any other kind of file."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        if magic != 0x0800 + dimensions:
            raise ValueError(f"it begins with {magic:#x}")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (ValueError, struct.error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not an idx file of bytes with {dimensions} dimensions: {error}") from error


def _read_cifar_binary(path: Path) -> tuple[Any, Any]:
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(content) or len(content) % (1 + CIFAR_BYTES):
        raise InputError(
            f"{path} is not a binary CIFAR-10 batch: it does not consist of records of {1 + CIFAR_BYTES} bytes"
        )
    records = content.reshape(-1, 1 + CIFAR_BYTES)
    return records[:, 1:].ravel(), records[:, 0]


def _read_cifar_pickle(path: Path) -> tuple[Any, Any]:
    """Return the image bytes and classes in a pickled batch, read from its opcodes; no objects are created."""
    try:
        opcodes = [(code.name, value) for code, value, _ in pickletools.genops(path.read_bytes())]
    except (ValueError, IndexError) as error:
        raise InputError(f"{path} is not a Python CIFAR-10 batch: {error}") from error
    classes = _integers_after("labels", opcodes)
    strings = [value for _, value in opcodes if isinstance(value, str | bytes)]
    images = b"".join(
        text.encode("latin1") if isinstance(text, str) else text for text in strings if len(text) >= CIFAR_BYTES
    )
    if "data" not in strings or len(images) != len(classes) * CIFAR_BYTES:
        raise InputError(
            f"{path} is not a Python CIFAR-10 batch: it has {len(classes)} labels and {len(images)} bytes of image data"
        )
    return np.frombuffer(images, np.uint8), np.array(classes, dtype=np.int64)


def _integers_after(key: str, opcodes: list[tuple[str, Any]]) -> list[int]:
    """Return the integers in the list under `key`, which ends at the next string. Memo indices are excluded."""
    after = itertools.islice(itertools.dropwhile(lambda opcode: opcode[1] != key, opcodes), 1, None)
    until_string = itertools.takewhile(lambda opcode: not isinstance(opcode[1], str | bytes), after)
    return [value for name, value in until_string if name in ("BININT", "BININT1", "BININT2")]


def _existing_file(folder: Path, name: str) -> Path:
    """Return the path of a file, which may be gzipped. Raises Unsupported if it does not exist."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise Unsupported(
        f"{folder} does not contain {name}: put the files of the data set there, or set data.root to a different "
        "folder; nothing is downloaded"
    )


def _as_tensors(images: Any, classes: Any, place: Path) -> tuple[Tensor, Tensor]:
    if len(images) != len(classes) or not len(images):
        raise InputError(f"{place}: there are {len(images)} images but {len(classes)} class labels")
    if int(max(classes)) > 9:
        raise InputError(f"{place}: class {max(classes)} is out of range: there are ten classes, numbered from 0")
    return torch.from_numpy(np.array(images, dtype=np.uint8)), torch.from_numpy(classes.astype(np.int64))


def sklearn_file(name: str) -> Path:
    """Return the path of scikit-learn's data file `name`, without importing it. Raises FileNotFoundError."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "scikit-learn is not installed, and this data set is part of it: pip install scikit-learn"
        )
    return Path(spec.origin).parent / "datasets" / "data" / name


def read_digits() -> tuple[Tensor, Tensor]:
    """Return images (1797, 1, 8, 8) in uint8, with values from 0 to 16, and classes (1797,) in int64."""
    with gzip.open(sklearn_file("digits.csv.gz"), "rt", encoding="ascii") as file:
        table = np.array([line.split(",") for line in file], dtype=np.float32)
    images = torch.from_numpy(table[:, :64].astype(np.uint8)).reshape(-1, 1, 8, 8)
    return images.contiguous(), torch.from_numpy(table[:, 64].astype(np.int64))


class Digits(FiniteData):
    """scikit-learn's handwritten digits."""

    full_scale = 16.0

    def read(self) -> tuple[Rows, Rows]:
        """Read the file and split the data."""
        return self.split(TensorRows(*read_digits()))


TABLES = {"wine": "wine_data.csv", "breast_cancer": "breast_cancer.csv", "iris": "iris.csv"}
"""scikit-learn's name of each classification table -> the table's file."""


def read_table(name: str) -> tuple[Tensor, Tensor]:
    """Return columns (samples, features) in float32 and classes (samples,) in int64.

    Raises InputError if the table is unknown.
    """
    if name not in TABLES:
        raise InputError(f"data.table={name} is not one of {', '.join(TABLES)}{nearest(name, TABLES)}")
    table = np.loadtxt(sklearn_file(TABLES[name]), delimiter=",", skiprows=1, dtype=np.float64)
    return torch.from_numpy(table[:, :-1].astype(np.float32)), torch.from_numpy(table[:, -1].astype(np.int64))


class Table(FiniteData):
    """A scikit-learn table whose columns are standardised with the mean and deviation of the training rows."""

    def __init__(self, table: str = "wine", **options: Unpack[DataOptions]) -> None:
        """`table` is scikit-learn's name of the table."""
        super().__init__(**options)
        self._table = table

    def read(self) -> tuple[Rows, Rows]:
        """Read the file, split the data and standardise the columns."""
        return standardize(*self.split(TensorRows(*read_table(self._table))))


def standardize(training: TensorRows, validation: TensorRows) -> tuple[TensorRows, TensorRows]:
    """Return both sets with columns shifted and scaled so that the training rows have mean 0 and standard deviation 1.

    A constant column is only shifted.
    """
    columns, *_ = training.tensors
    mean, deviation = columns.mean(dim=0), columns.std(dim=0, correction=0)
    deviation = torch.where(deviation == 0, torch.ones_like(deviation), deviation)

    def scaled(rows: TensorRows) -> TensorRows:
        return TensorRows((rows.tensors[0] - mean) / deviation, *rows.tensors[1:])

    return scaled(training), scaled(validation)


MAX_BYTES = 256 * 2**20
"""The maximum size in bytes of a random data set's inputs if `samples` is None.

Each rank still gets at least two batches.
"""

MAX_SAMPLES = 8192
"""The maximum number of samples in a random data set if `samples` is None.

Each rank still gets at least two batches.
"""


class RandomData(FiniteData):
    """A random data set, drawn once before training.

    Each input has the given `shape`, with `item_bytes` bytes per number.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        item_bytes: int,
        samples: int | None,
        epoch_samples: int | None,
        **options: Unpack[DataOptions],
    ) -> None:
        """If `samples` is None, as many samples as the limits above allow are drawn.

        `epoch_samples` is the size of the real data set.
        """
        super().__init__(**options)
        self._shape, self._epoch_samples = shape, samples if epoch_samples is None else epoch_samples
        fitting = min(MAX_SAMPLES, MAX_BYTES // (prod(shape) * item_bytes))
        self._samples = max(fitting, 2 * self.batch_size * rank_and_size()[1]) if samples is None else samples

    @property
    def epoch_samples(self) -> int | None:
        """The number of samples in the real data set that this one represents; None if the config does not set it."""
        return self._epoch_samples

    def read(self) -> tuple[Rows, Rows]:
        """Draw the set using the run's seed. Without folds, some of the training rows serve as the validation set."""
        rows = TensorRows(*self.draw(self._samples, torch.Generator().manual_seed(self.seed)))
        if self._folds is not None:
            return self.split(rows)
        return rows, rows.subset(torch.arange(min(len(rows), VALIDATION_BATCH)))

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` inputs and targets."""
        raise NotImplementedError(f"{type(self).__name__} does not define its random data")


class RandomImages(RandomData):
    """Images of shape (channels, image_size, image_size), filled with random non-zero bytes."""

    def __init__(
        self,
        image_size: int = 32,
        channels: int = 3,
        classes: int = 10,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **options: Unpack[DataOptions],
    ) -> None:
        """`image_size` is the side length of a square image in pixels."""
        super().__init__((channels, image_size, image_size), 4, samples, epoch_samples, **options)
        self._classes = classes

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (count, channels, image_size, image_size) in uint8 and classes (count,)."""
        images = torch.randint(1, 256, (count, *self._shape), dtype=torch.uint8, generator=generator)
        return images, torch.randint(self._classes, (count,), generator=generator)


class RandomVectors(RandomData):
    """Vectors of shape (features,), filled with normally distributed numbers."""

    def __init__(
        self,
        features: int = 26752,
        classes: int = 26752,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **options: Unpack[DataOptions],
    ) -> None:
        """The defaults fit FCN-5 and FCN-8."""
        super().__init__((features,), 4, samples, epoch_samples, **options)
        self._classes = classes

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return vectors (count, features) in float32 and classes (count,)."""
        vectors = torch.randn((count, *self._shape), generator=generator)
        return vectors, torch.randint(self._classes, (count,), generator=generator)


class RandomTokens(RandomData):
    """Token sequences for a language model: each token's target is the next token."""

    def __init__(
        self,
        sequence: int = 32,
        vocabulary: int = 10_000,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **options: Unpack[DataOptions],
    ) -> None:
        """`sequence` is the number of tokens per sample."""
        super().__init__((sequence,), 8, samples, epoch_samples, **options)
        self._vocabulary = vocabulary

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and next tokens, both (count, sequence) in int64."""
        tokens = torch.randint(self._vocabulary, (count, self._shape[0] + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class RandomText(RandomData):
    """Texts of `sequence` tokens, each with one class."""

    def __init__(
        self,
        sequence: int = 200,
        vocabulary: int = 20_000,
        classes: int = 2,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **options: Unpack[DataOptions],
    ) -> None:
        """The defaults fit the text classifier."""
        super().__init__((sequence,), 8, samples, epoch_samples, **options)
        self._vocabulary, self._classes = vocabulary, classes

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens (count, sequence) and classes (count,), both in int64."""
        tokens = torch.randint(self._vocabulary, (count, *self._shape), generator=generator)
        return tokens, torch.randint(self._classes, (count,), generator=generator)
