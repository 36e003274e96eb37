"""The shipped data sets: MNIST and CIFAR-10 from files, scikit-learn's digits and tables, and random data."""

from __future__ import annotations

import gzip
import importlib
import pickle
import re
import struct
import sys
from itertools import islice

import numpy as np
import pytest
import torch

import accelsweep
from accelsweep.errors import InputError, Unsupported
from accelsweep.workloads.datasets import (
    Cifar10,
    Digits,
    Mnist,
    RandomImages,
    RandomText,
    RandomTokens,
    RandomVectors,
    Table,
    read_digits,
    read_table,
)

RANDOM = np.random.default_rng(0)
OPTIONS = {"batch_size": 4, "seed": 1}


def write_idx(path, array, zipped=False):
    content = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
    if zipped:
        path = path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(content) if zipped else content)


@pytest.fixture
def mnist(tmp_path):
    """Return the folder with a tiny MNIST, and its training images and classes; the test images are zipped."""
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images, classes = RANDOM.integers(256, size=(20, 6, 6), dtype=np.uint8), np.arange(20, dtype=np.uint8) % 10
    write_idx(raw / "train-images-idx3-ubyte", images)
    write_idx(raw / "train-labels-idx1-ubyte", classes)
    write_idx(raw / "t10k-images-idx3-ubyte", images[:5], zipped=True)
    write_idx(raw / "t10k-labels-idx1-ubyte", classes[:5], zipped=True)
    return tmp_path, images, classes


def test_mnist_has_the_images_and_classes_of_its_files(mnist):
    root, images, classes = mnist
    training, test = Mnist(root=str(root), **OPTIONS).read()
    assert torch.equal(training.tensors[0], torch.from_numpy(images)[:, None])
    assert training.tensors[1].tolist() == classes.tolist()
    assert len(test) == 5
    assert len(Mnist(root=str(root), folds=4, **OPTIONS).read()[1]) == 5, "a fold of the training images"


def test_a_damaged_mnist_file_is_named(mnist):
    raw = mnist[0] / "MNIST" / "raw"
    (raw / "train-labels-idx1-ubyte").write_bytes(b"<html>")
    with pytest.raises(InputError, match="train-labels-idx1-ubyte is not an idx file of bytes with 1 dimensions"):
        Mnist(root=str(mnist[0]), **OPTIONS).read()
    write_idx(raw / "train-labels-idx1-ubyte", np.zeros(19, dtype=np.uint8))
    with pytest.raises(InputError, match="there are 20 images but 19 class labels"):
        Mnist(root=str(mnist[0]), **OPTIONS).read()


@pytest.mark.parametrize("damage", [lambda content: content[:20], lambda content: content[:12] + b"\xff" * 20])
def test_a_damaged_gzip_file_is_named(mnist, damage):
    path = mnist[0] / "MNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"t10k-images-idx3-ubyte\.gz is not an idx file"):
        Mnist(root=str(mnist[0]), **OPTIONS).read()


def test_missing_files_are_unsupported_with_where_to_put_them(tmp_path):
    with pytest.raises(Unsupported, match=r"MNIST/raw does not contain train-images-idx3-ubyte: put .* data\.root"):
        Mnist(root=str(tmp_path), **OPTIONS).read()
    with pytest.raises(Unsupported, match=r"cifar-10-batches-py does not contain data_batch_1: put .* data\.root"):
        Cifar10(root=str(tmp_path), **OPTIONS).read()


@pytest.fixture
def cifar():
    """Images (12, 3072) and classes: two for each of the six files."""
    return RANDOM.integers(256, size=(12, 3072), dtype=np.uint8), np.arange(12, dtype=np.uint8) % 10


def write_cifar(folder, images, classes, encode, suffix=""):
    folder.mkdir()
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        rows = slice(2 * number, 2 * number + 2)
        (folder / f"{name}{suffix}").write_bytes(encode(images[rows], classes[rows]))


def python_2_pickle(images, classes):
    """A batch as CIFAR-10's authors pickled it, with protocol 2 of Python 2."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + 2 * b"J\xff\xff\xff\xff"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR(K\x01("
    shape = b"".join(b"J" + struct.pack("<i", size) for size in images.shape)
    array += shape + b"t" + dtype + b"K\x00tb\x89" + text(images.tobytes()) + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([number]) for number in classes) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def python_3_pickle(images, classes):
    return pickle.dumps({"data": images, "labels": classes.tolist()}, protocol=3)


def test_numpy_itself_can_unpickle_the_python_2_batch_of_these_tests(cifar):
    images, classes = cifar
    unpickled = pickle.loads(python_2_pickle(images, classes), encoding="latin1")
    assert np.array_equal(unpickled["data"], images)
    assert unpickled["labels"] == classes.tolist()


@pytest.mark.parametrize("encode", [python_2_pickle, python_3_pickle])
def test_cifar10_has_the_images_and_classes_of_its_pickles(tmp_path, cifar, encode):
    images, classes = cifar
    write_cifar(tmp_path / "cifar-10-batches-py", images, classes, encode)
    training, test = Cifar10(root=str(tmp_path), **OPTIONS).read()
    assert torch.equal(training.tensors[0], torch.from_numpy(images[:10]).reshape(-1, 3, 32, 32))
    assert training.tensors[1].tolist() == classes[:10].tolist()
    assert test.tensors[1].tolist() == classes[10:].tolist()


def test_the_binary_version_of_cifar10_holds_the_same(tmp_path, cifar):
    write_cifar(tmp_path / "cifar-10-batches-py", *cifar, python_2_pickle)
    from_pickles = Cifar10(root=str(tmp_path), **OPTIONS).read()
    folder = tmp_path / "cifar-10-batches-bin"
    write_cifar(folder, *cifar, lambda images, classes: np.column_stack((classes, images)).tobytes(), ".bin")
    for binary, pickled in zip(Cifar10(root=str(tmp_path), **OPTIONS).read(), from_pickles, strict=True):
        assert all(map(torch.equal, binary.tensors, pickled.tensors))
    (folder / "test_batch.bin").write_bytes(b"123")
    with pytest.raises(InputError, match=r"test_batch\.bin is not a binary CIFAR-10 batch"):
        Cifar10(root=str(tmp_path), **OPTIONS).read()


def test_a_pickle_that_would_run_code_is_refused_without_running_it(tmp_path, cifar):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    def encode(_, classes):
        return pickle.dumps({"data": Evil(), "labels": classes.tolist()})

    write_cifar(tmp_path / "cifar-10-batches-py", *cifar, encode)
    with pytest.raises(InputError, match=r"data_batch_1 is not a Python CIFAR-10 batch: it has 2 labels and 0 bytes"):
        Cifar10(root=str(tmp_path), **OPTIONS).read()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("content", [b"", b"\x80\x02}.", b"not a pickle", pickle.dumps({"data": 3, "labels": [1]})])
def test_a_damaged_pickle_is_named(tmp_path, cifar, content):
    write_cifar(tmp_path / "cifar-10-batches-py", *cifar, lambda *_: content)
    with pytest.raises(InputError, match="data_batch_1 is not a Python CIFAR-10 batch"):
        Cifar10(root=str(tmp_path), **OPTIONS).read()


def test_the_digits_are_scikit_learns_scaled_to_one():
    from sklearn import datasets

    images, classes = read_digits()
    expected = datasets.load_digits()
    assert torch.equal(images.reshape(-1, 64).double(), torch.tensor(expected.data))
    assert torch.equal(classes, torch.tensor(expected.target))
    scaled = next(iter(Digits(batch_size=4).val_dataloader()))[0]
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert torch.equal(scaled * 16, (scaled * 16).round())


def test_reading_digits_imports_neither_scikit_learn_nor_pandas(monkeypatch):
    """Reimports our modules in this interpreter: a fresh one would import torch, too."""
    monkeypatch.setattr(accelsweep, "workloads", accelsweep.workloads)
    reimported = re.compile(r"(accelsweep\.workloads|sklearn|pandas)(\.|$)")
    for name in [name for name in sys.modules if reimported.match(name)]:
        monkeypatch.delitem(sys.modules, name)
    images, _ = importlib.import_module("accelsweep.workloads.datasets").read_digits()
    assert len(images) == 1797
    assert sys.modules.keys().isdisjoint({"sklearn", "pandas"})


def test_training_and_validation_rows_are_disjoint_and_the_split_never_changes():
    def rows(seed):
        data = Digits(batch_size=1438, seed=seed)
        held_out = torch.cat([images for images, _ in data.val_dataloader()]).flatten(1)
        training, _ = next(iter(data.train_dataloader()))
        return {tuple(row.tolist()) for row in held_out}, {tuple(row.tolist()) for row in training.flatten(1)}

    held_out, training = rows(seed=1)
    assert not held_out & training
    assert rows(seed=2) == (held_out, training)


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "iris"])
def test_the_tables_are_scikit_learns(name):
    from sklearn import datasets

    columns, classes = read_table(name)
    expected = getattr(datasets, f"load_{name}")()
    torch.testing.assert_close(columns, torch.tensor(expected.data, dtype=torch.float32))
    assert torch.equal(classes, torch.tensor(expected.target))


def test_the_columns_of_a_table_are_standardised_by_the_training_rows_alone():
    training_rows = 178 - int(178 * 0.2)
    data = Table(batch_size=training_rows, table="wine", validation_share=0.2)
    columns, _ = next(iter(data.train_dataloader()))
    torch.testing.assert_close(columns.mean(dim=0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(columns.std(dim=0, correction=0), torch.ones(13), atol=1e-5, rtol=0)
    held_out, _ = next(iter(data.val_dataloader()))
    assert held_out.mean(dim=0).abs().max() > 0.05


def test_an_unknown_table_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'wine'"):
        read_table("wines")


RANDOM_DATA = {
    "images": (lambda **options: RandomImages(image_size=5, **options), (3, 5, 5)),
    "vectors": (lambda **options: RandomVectors(features=9, classes=4, **options), (9,)),
    "tokens": (lambda **options: RandomTokens(sequence=6, vocabulary=50, **options), (6,)),
    "text": (lambda **options: RandomText(sequence=6, vocabulary=50, classes=2, **options), (6,)),
}


@pytest.mark.parametrize("name", RANDOM_DATA)
def test_random_data_has_the_shape_asked_for_and_depends_on_the_seed_alone(name):
    make, shape = RANDOM_DATA[name]

    def first_inputs(seed):
        return [inputs for inputs, _ in islice(make(batch_size=4, seed=seed).train_dataloader(), 2)]

    first, second = first_inputs(1)
    assert first.shape == (4, *shape)
    assert not torch.equal(first, second)
    assert torch.equal(first, first_inputs(1)[0])
    assert not torch.equal(first, first_inputs(2)[0])


def test_no_random_pixel_is_zero():
    assert all((images > 0).all() for images, _ in islice(RandomImages(batch_size=64).train_dataloader(), 5))


def test_the_targets_of_random_tokens_are_the_next_ones():
    tokens, targets = next(iter(RandomTokens(batch_size=4).train_dataloader()))
    assert torch.equal(tokens[:, 1:], targets[:, :-1])


def test_ranks_train_on_different_random_data(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = set()
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        vectors, _ = next(iter(RandomVectors(batch_size=8, features=9).train_dataloader()))
        seen |= {tuple(vector.tolist()) for vector in vectors}
    assert len(seen) == 16


def test_random_data_without_a_size_has_two_batches_for_each_rank_and_represents_no_set(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    large = RandomVectors(batch_size=5000, features=3)
    assert len(list(islice(large.train_dataloader(), 2))) == 2
    assert large.epoch_samples is None
    assert len(RandomVectors(batch_size=1, features=2**20).read()[0]) == 64, "256 MiB"


def test_random_data_may_represent_a_real_set():
    assert RandomVectors(batch_size=4, features=3, samples=100).epoch_samples == 100
    assert RandomVectors(batch_size=4, features=3, samples=100, epoch_samples=1_281_167).epoch_samples == 1_281_167
