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
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.workloads.loading.finite import Delivery, FiniteData
from accelsweep.workloads.loading.rows import Rows, Tensors

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
