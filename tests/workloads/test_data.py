"""The data that comes with packages, and noise of any shape."""

from __future__ import annotations

import importlib
import re
import sys
from itertools import islice

import pytest
import torch
from sklearn import datasets

import accelsweep
from accelsweep.errors import InputError
from accelsweep.workloads.datasets import (
    Digits,
    RandomImages,
    RandomText,
    RandomTokens,
    RandomVectors,
    Table,
    read_digits,
    read_table,
)

pytestmark = pytest.mark.heavy


def test_the_digits_are_scikit_learns_scaled_to_one():
    images, classes = read_digits()
    theirs = datasets.load_digits()
    assert torch.equal(images.reshape(-1, 64).double(), torch.tensor(theirs.data))
    assert torch.equal(classes, torch.tensor(theirs.target))
    scaled = next(iter(Digits(batch_size=4).val_dataloader()))[0]
    assert (scaled.min(), scaled.max()) == (0, 1)
    assert torch.equal(scaled * 16, (scaled * 16).round())


def test_reading_digits_imports_neither_scikit_learn_nor_pandas(monkeypatch):
    """Our modules are imported anew, as if neither had been: a fresh interpreter would import torch, too."""
    monkeypatch.setattr(accelsweep, "workloads", accelsweep.workloads)
    anew = re.compile(r"(accelsweep\.workloads|sklearn|pandas)(\.|$)")
    for name in [name for name in sys.modules if anew.match(name)]:
        monkeypatch.delitem(sys.modules, name)
    images, _ = importlib.import_module("accelsweep.workloads.datasets").read_digits()
    assert len(images) == 1797
    assert sys.modules.keys().isdisjoint({"sklearn", "pandas"})


def test_training_and_validation_rows_are_apart_and_the_split_never_changes():
    def rows(seed):
        data = Digits(batch_size=1438, seed=seed)
        data.setup("fit")
        held_out = torch.cat([images for images, _ in data.val_dataloader()]).flatten(1)
        (training, _) = next(iter(data.train_dataloader()))
        return {tuple(row.tolist()) for row in held_out}, {tuple(row.tolist()) for row in training.flatten(1)}

    held_out, training = rows(seed=1)
    assert not held_out & training
    assert rows(seed=2) == (held_out, training)


@pytest.mark.parametrize("name", ["wine", "breast_cancer", "iris"])
def test_the_tables_are_scikit_learns(name):
    columns, classes = read_table(name)
    theirs = getattr(datasets, f"load_{name}")()
    torch.testing.assert_close(columns, torch.tensor(theirs.data, dtype=torch.float32))
    assert torch.equal(classes, torch.tensor(theirs.target))


def test_a_tables_columns_are_standardised_by_the_training_rows_alone():
    data = Table(batch_size=142, table="wine", validation_share=0.2)
    columns, _ = next(iter(data.train_dataloader()))
    assert len(columns) > 140
    single = Table(batch_size=1, table="wine")
    single.train_dataloader()
    data = Table(batch_size=single.epoch_samples, table="wine")
    everything, _ = next(iter(data.train_dataloader()))
    torch.testing.assert_close(everything.mean(dim=0), torch.zeros(13), atol=1e-5, rtol=0)
    torch.testing.assert_close(everything.std(dim=0, correction=0), torch.ones(13), atol=1e-5, rtol=0)
    held_out, _ = next(iter(data.val_dataloader()))
    assert held_out.mean(dim=0).abs().max() > 0.05


def test_an_unknown_table_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'wine'"):
        read_table("wines")


NOISE = {
    "images": (lambda **more: RandomImages(image_size=5, **more), (3, 5, 5)),
    "vectors": (lambda **more: RandomVectors(features=9, classes=4, **more), (9,)),
    "tokens": (lambda **more: RandomTokens(sequence=6, vocabulary=50, **more), (6,)),
    "text": (lambda **more: RandomText(sequence=6, vocabulary=50, classes=2, **more), (6,)),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_the_shape_asked_for_and_repeats_with_the_seed_alone(name):
    make, shape = NOISE[name]

    def inputs(seed):
        return [inputs for inputs, _ in islice(make(batch_size=4, seed=seed).train_dataloader(), 3)]

    first, second, _ = inputs(1)
    assert first.shape == (4, *shape)
    assert not torch.equal(first, second)
    assert torch.equal(first, inputs(1)[0])
    assert not torch.equal(first, inputs(2)[0])


def test_no_random_pixel_is_zero():
    assert all((images > 0).all() for images, _ in islice(RandomImages(batch_size=64).train_dataloader(), 5))


def test_the_targets_of_random_tokens_are_the_next_ones():
    tokens, following = next(iter(RandomTokens(batch_size=4).train_dataloader()))
    assert torch.equal(tokens[:, 1:], following[:, :-1])


def test_ranks_train_on_different_noise(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        seen.append(
            {
                tuple(vector.tolist())
                for vector in next(iter(RandomVectors(batch_size=8, features=9).train_dataloader()))[0]
            }
        )
    assert len(seen[0] | seen[1]) == 16


def test_noise_of_no_given_size_has_two_batches_for_each_rank_and_stands_for_no_set(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    large = RandomVectors(batch_size=5000, features=3)
    assert len(list(islice(large.train_dataloader(), 2))) == 2
    assert large.epoch_samples is None
    assert sum(map(len, RandomVectors(batch_size=1, features=2**20).read()[0].tensors[:1])) == 64


def test_noise_may_stand_for_a_real_set():
    assert RandomVectors(batch_size=4, features=3, samples=100).epoch_samples == 100
    assert RandomVectors(batch_size=4, features=3, samples=100, epoch_samples=1_281_167).epoch_samples == 1_281_167
