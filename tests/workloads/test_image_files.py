"""MNIST and CIFAR-10 from files as their authors give them out: read whole, and nothing in them is run."""

from __future__ import annotations

import gzip
import pickle
import struct

import numpy as np
import pytest
import torch

from accelsweep.errors import InputError, Unsupported
from accelsweep.workloads.datasets import Cifar10, Mnist

NUMBERS = np.random.default_rng(0)
PLAIN = {"batch_size": 4, "seed": 1}


def idx(path, array, zipped=False):
    content = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
    if zipped:
        path = path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.fixture
def mnist(tmp_path):
    """Return the folder with a tiny MNIST, and its training images and classes; the test images are zipped."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images, classes = NUMBERS.integers(256, size=(20, 6, 6), dtype=np.uint8), np.arange(20, dtype=np.uint8) % 10
    idx(raw / "train-images-idx3-ubyte", images)
    idx(raw / "train-labels-idx1-ubyte", classes)
    idx(raw / "t10k-images-idx3-ubyte", images[:5], zipped=True)
    idx(raw / "t10k-labels-idx1-ubyte", classes[:5], zipped=True)
    return tmp_path, images, classes


def test_mnists_images_and_classes_are_those_in_its_files(mnist):
    root, images, classes = mnist
    training, test = Mnist(root=str(root), **PLAIN).read()
    assert torch.equal(training.tensors[0], torch.from_numpy(images)[:, None])
    assert training.tensors[1].tolist() == classes.tolist()
    assert len(test) == 5
    assert len(Mnist(root=str(root), folds=4, **PLAIN).read()[1]) == 5, "a fold of the training images"


def test_a_damaged_file_of_mnists_is_named(mnist):
    raw = mnist[0] / "MNIST" / "raw"
    (raw / "train-labels-idx1-ubyte").write_bytes(b"<html>")
    with pytest.raises(InputError, match="train-labels-idx1-ubyte is no idx file of bytes in 1 dimensions"):
        Mnist(root=str(mnist[0]), **PLAIN).read()
    idx(raw / "train-labels-idx1-ubyte", np.zeros(19, dtype=np.uint8))
    with pytest.raises(InputError, match="there are 20 images and 19 classes"):
        Mnist(root=str(mnist[0]), **PLAIN).read()


def test_missing_files_are_a_row_that_says_where_to_put_them(tmp_path):
    with pytest.raises(Unsupported, match=r"MNIST/raw holds no train-images-idx3-ubyte: put .* data\.root"):
        Mnist(root=str(tmp_path), **PLAIN).read()
    with pytest.raises(Unsupported, match=r"cifar-10-batches-py holds no data_batch_1: put .* data\.root"):
        Cifar10(root=str(tmp_path), **PLAIN).read()


def python_2(images, classes):
    """A batch as CIFAR-10's authors pickled it, with the second protocol of Python 2."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    kind = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR(K\x01("
    shape = b"".join(b"J" + struct.pack("<i", size) for size in images.shape)
    array += shape + b"t" + kind + b"K\x00tb\x89" + text(images.tobytes()) + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([number]) for number in classes) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def test_a_batch_as_python_2_wrote_it_is_one_that_numpy_itself_reads(cifar):
    images, classes = cifar
    found = pickle.loads(python_2(images, classes), encoding="latin1")
    assert np.array_equal(found["data"], images)
    assert found["labels"] == classes.tolist()


def numpy_now(images, classes):
    return pickle.dumps({"data": images, "labels": classes.tolist()}, protocol=3)


@pytest.fixture
def cifar():
    """Images (12, 3072) and classes, of which each of six files has two."""
    return NUMBERS.integers(256, size=(12, 3072), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 10


def pickled(root, images, classes, written):
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        rows = slice(2 * number, 2 * number + 2)
        (folder / name).write_bytes(written(images[rows], classes[rows]))


@pytest.mark.parametrize("written", [python_2, numpy_now])
def test_cifars_images_are_those_in_its_pickles(tmp_path, cifar, written):
    images, classes = cifar
    pickled(tmp_path, images, classes, written)
    training, test = Cifar10(root=str(tmp_path), **PLAIN).read()
    assert torch.equal(training.tensors[0], torch.from_numpy(images[:10]).reshape(-1, 3, 32, 32))
    assert training.tensors[1].tolist() == classes[:10].tolist()
    assert test.tensors[1].tolist() == classes[10:].tolist()


def test_cifars_binary_version_holds_the_same(tmp_path, cifar):
    images, classes = cifar
    pickled(tmp_path, images, classes, python_2)
    from_pickles = Cifar10(root=str(tmp_path), **PLAIN).read()
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        rows = slice(2 * number, 2 * number + 2)
        (folder / f"{name}.bin").write_bytes(np.column_stack((classes[rows], images[rows])).tobytes())
    for ours, theirs in zip(Cifar10(root=str(tmp_path), **PLAIN).read(), from_pickles, strict=True):
        assert all(map(torch.equal, ours.tensors, theirs.tensors))
    (folder / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(InputError, match=r"test_batch\.bin is no binary batch"):
        Cifar10(root=str(tmp_path), **PLAIN).read()


def test_a_pickle_that_would_run_something_is_refused_and_nothing_is_run(tmp_path, cifar):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    pickled(tmp_path, *cifar, lambda images, classes: pickle.dumps({"data": Evil(), "labels": classes.tolist()}))
    with pytest.raises(InputError, match=r"data_batch_1 is no Python batch of CIFAR-10: it holds 2 labels and 0 bytes"):
        Cifar10(root=str(tmp_path), **PLAIN).read()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02}.", b"not a pickle", pickle.dumps({"data": 3, "labels": [1]})])
def test_a_damaged_pickle_is_named(tmp_path, cifar, content):
    pickled(tmp_path, *cifar, lambda *_: content)
    with pytest.raises(InputError, match="data_batch_1 is no Python batch of CIFAR-10"):
        Cifar10(root=str(tmp_path), **PLAIN).read()
