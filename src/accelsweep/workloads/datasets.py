"""MNIST and CIFAR-10 from the files that their authors give out, in the folders where torchvision keeps them.

They need no torchvision, and nothing is downloaded. MNIST's files are headers and bytes (Y. LeCun, C. Cortes and C.
Burges, "The MNIST database of handwritten digits"). CIFAR-10 (A. Krizhevsky, 2009) comes as bytes, or as pickles. A
pickle may call anything, so it is never unpickled: its instructions are listed, and the bytes and numbers picked out.
"""

from __future__ import annotations

import gzip
import itertools
import pickletools  # nosec B403
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.workloads.data_module import VALIDATION_BATCH, Delivery, FiniteData
from accelsweep.workloads.training_stream import Rows, Tensors, rank_and_size

Set = tuple[Tensor, Tensor]
"""Images (samples, channels, height, width) in uint8, and classes (samples,) in int64."""

CIFAR_SHAPE = (3, 32, 32)

_CIFAR_BYTES = 3 * 32 * 32


class ImageFiles(FiniteData):
    """A set in files below `root`. The test images are held out, or a fold of the training images."""

    def __init__(self, root: str = "datasets", **delivery: Unpack[Delivery]) -> None:
        """`root` is the folder that is given to torchvision's classes."""
        super().__init__(**delivery)
        self._root = Path(root)

    def read(self) -> tuple[Rows, Rows]:
        """Read the files. Raises Unsupported where they are missing, InputError where they are damaged."""
        training = Tensors(*self.part("training"))
        return (training, Tensors(*self.part("test"))) if self._folds is None else self.split(training)

    def part(self, which: str) -> Set:
        """Return the images of `training` or `test`."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its files are")


class Mnist(ImageFiles):
    """MNIST, or a set in the same files: FashionMNIST, KMNIST."""

    def __init__(self, dataset: str = "MNIST", root: str = "datasets", **delivery: Unpack[Delivery]) -> None:
        """`dataset` is the folder of the set below `root`, whose folder `raw` holds four files, gzipped or not."""
        super().__init__(root, **delivery)
        self._folder = self._root / dataset / "raw"

    def part(self, which: str) -> Set:
        """Return the images (samples, 1, height, width) and their classes."""
        name = {"training": "train", "test": "t10k"}[which]
        images = idx_numbers(_file(self._folder, f"{name}-images-idx3-ubyte"), 3)
        classes = idx_numbers(_file(self._folder, f"{name}-labels-idx1-ubyte"), 1)
        return _checked(images[:, None], classes, self._folder)


class Cifar10(ImageFiles):
    """CIFAR-10: its binary version in `cifar-10-batches-bin`, or else its Python version in `cifar-10-batches-py`."""

    def part(self, which: str) -> Set:
        """Return the images (samples, 3, 32, 32) and their classes."""
        names = [f"data_batch_{number}" for number in range(1, 6)] if which == "training" else ["test_batch"]
        binary, python = self._root / "cifar-10-batches-bin", self._root / "cifar-10-batches-py"
        if binary.is_dir():
            parts = [_cifar_records(_file(binary, f"{name}.bin")) for name in names]
        else:
            parts = [_cifar_pickle(_file(python, name)) for name in names]
        images, classes = (np.concatenate([part.ravel() for part in each]) for each in zip(*parts, strict=True))
        return _checked(images.reshape(-1, *CIFAR_SHAPE), classes, self._root)


def idx_numbers(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of an idx file in its shape. Raises InputError for another kind of file."""
    opened: Callable[[Path], Any] = gzip.open if path.suffix == ".gz" else Path.open
    try:
        with opened(path, "rb") as file:  # type: ignore[call-arg]
            content = file.read()
        magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content)
        if magic != 0x0800 + dimensions:
            raise ValueError(f"it begins with {magic:#x}")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (ValueError, struct.error, EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is no idx file of bytes in {dimensions} dimensions: {error}") from error


def _cifar_records(path: Path) -> tuple[Any, Any]:
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if not len(content) or len(content) % (1 + _CIFAR_BYTES):
        raise InputError(f"{path} is no binary batch of CIFAR-10: it holds no records of {1 + _CIFAR_BYTES} bytes")
    records = content.reshape(-1, 1 + _CIFAR_BYTES)
    return records[:, 1:], records[:, 0]


def _cifar_pickle(path: Path) -> tuple[Any, Any]:
    """Return the images and classes in a pickled batch, found among what it states; nothing is made of it."""
    try:
        stated = [(code.name, value) for code, value, _ in pickletools.genops(path.read_bytes())]
    except (ValueError, IndexError) as error:
        raise InputError(f"{path} is no Python batch of CIFAR-10: {error}") from error
    classes = list(_numbers_after("labels", stated))
    images = b"".join(_bytes_of(value) for _, value in stated if isinstance(value, str | bytes) and len(value) > 3000)
    if ("data" not in [value for _, value in stated]) or len(images) != len(classes) * _CIFAR_BYTES:
        raise InputError(
            f"{path} is no Python batch of CIFAR-10: it holds {len(classes)} labels and {len(images)} bytes of images"
        )
    return np.frombuffer(images, np.uint8), np.array(classes, dtype=np.int64)


def _numbers_after(key: str, stated: Iterable[tuple[str, Any]]) -> Iterator[int]:
    """Yield the numbers of the list under `key`: those before the next text, without the marks for later use."""
    rest = itertools.dropwhile(lambda one: one[1] != key, stated)
    next(rest, None)
    for name, value in itertools.takewhile(lambda one: not isinstance(one[1], str | bytes), rest):
        if name in ("BININT", "BININT1", "BININT2"):
            yield value


def _bytes_of(value: str | bytes) -> bytes:
    return value.encode("latin1") if isinstance(value, str) else value


def _file(folder: Path, name: str) -> Path:
    """Return the path of a file, perhaps gzipped. Raises Unsupported where there is none."""
    found = next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    if found is None:
        raise Unsupported(
            f"{folder} holds no {name}: put the set's files there, or name the folder above with data.root; nothing is "
            "downloaded"
        )
    return found


def _checked(images: Any, classes: Sequence[int] | Any, place: Path) -> Set:
    if len(images) != len(classes) or not len(images):
        raise InputError(f"{place}: there are {len(images)} images and {len(classes)} classes of them")
    if int(max(classes)) > 9:
        raise InputError(f"{place}: a class is {max(classes)}, and there are ten, from 0")
    return torch.from_numpy(np.array(images, dtype=np.uint8)), torch.from_numpy(np.asarray(classes).astype(np.int64))


# The data files that come with scikit-learn.


def shipped_file(name: str) -> Path:
    """Return the path of scikit-learn's data file `name`, without importing it. Raises FileNotFoundError."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "scikit-learn is not installed, and this data set is part of it: pip install scikit-learn"
        )
    return Path(spec.origin).parent / "datasets" / "data" / name


# Real data without a download: the handwritten digits that scikit-learn ships.


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


# Random images, vectors, tokens and texts of any shape: made once, before training, and never zeros.

MOST_BYTES = 256 * 2**20
"""The largest memory of the inputs of a set without a chosen size; but each rank has two batches at least."""

MOST_SAMPLES = 8192
"""The most samples of such a set, if that makes two batches for each rank."""


class Noise(FiniteData):
    """A random set. `shape` is that of one input as the module gets it, in numbers of `item_bytes`."""

    def __init__(
        self,
        shape: tuple[int, ...],
        item_bytes: int,
        samples: int | None,
        epoch_samples: int | None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`samples` None: as many as fit. `epoch_samples` is the size of the real set that this one stands for."""
        super().__init__(**delivery)
        self._shape, self._stands_for = shape, samples if epoch_samples is None else epoch_samples
        fitting = min(MOST_SAMPLES, MOST_BYTES // (prod(shape) * item_bytes))
        self._samples = max(fitting, 2 * self.batch_size * rank_and_size()[1]) if samples is None else samples

    @property
    def epoch_samples(self) -> int | None:
        """Samples of the set that this one stands for; None where the config names none."""
        return self._stands_for

    def read(self) -> tuple[Rows, Rows]:
        """Draw the set from the run's seed. Without folds some of the training rows are the validation set."""
        rows = Tensors(*self.drawn(self._samples, torch.Generator().manual_seed(self.seed)))
        if self._folds is not None:
            return self.split(rows)
        return rows, rows.subset(torch.arange(min(len(rows), VALIDATION_BATCH)))

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return `count` inputs and targets."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its noise is")


class RandomImages(Noise):
    """Images (channels, image_size, image_size) of random bytes, none of them zero."""

    def __init__(
        self,
        image_size: int = 32,
        channels: int = 3,
        classes: int = 10,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`image_size` is the side of a square image in pixels."""
        super().__init__((channels, image_size, image_size), 4, samples, epoch_samples, **delivery)
        self._classes = classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return images (count, channels, image_size, image_size) in uint8 and classes (count,)."""
        images = torch.randint(1, 256, (count, *self._shape), dtype=torch.uint8, generator=generator)
        return images, torch.randint(self._classes, (count,), generator=generator)


class RandomVectors(Noise):
    """Vectors (features,) of normally distributed numbers."""

    def __init__(
        self,
        features: int = 26752,
        classes: int = 26752,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """The defaults fit FCN-5 and FCN-8."""
        super().__init__((features,), 4, samples, epoch_samples, **delivery)
        self._classes = classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return vectors (count, features) in float32 and classes (count,)."""
        vectors = torch.randn((count, *self._shape), generator=generator)
        return vectors, torch.randint(self._classes, (count,), generator=generator)


class RandomTokens(Noise):
    """Sequences of tokens for a language model: the target of each token is the next one."""

    def __init__(
        self,
        sequence: int = 32,
        vocabulary: int = 10_000,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """`sequence` is the number of tokens of a sample."""
        super().__init__((sequence,), 8, samples, epoch_samples, **delivery)
        self._vocabulary = vocabulary

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens and next tokens, both (count, sequence) in int64."""
        tokens = torch.randint(self._vocabulary, (count, self._shape[0] + 1), generator=generator)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class RandomText(Noise):
    """Texts of `sequence` tokens, each with one class."""

    def __init__(
        self,
        sequence: int = 200,
        vocabulary: int = 20_000,
        classes: int = 2,
        samples: int | None = None,
        epoch_samples: int | None = None,
        **delivery: Unpack[Delivery],
    ) -> None:
        """The defaults fit the text classifier."""
        super().__init__((sequence,), 8, samples, epoch_samples, **delivery)
        self._vocabulary, self._classes = vocabulary, classes

    def drawn(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens (count, sequence) and classes (count,), both in int64."""
        tokens = torch.randint(self._vocabulary, (count, *self._shape), generator=generator)
        return tokens, torch.randint(self._classes, (count,), generator=generator)


# Tables without a download: those of scikit-learn's that have classes.

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
