"""The data that comes with the package."""

from __future__ import annotations

from itertools import islice

import torch
from sklearn.datasets import load_digits

from accelsweep.workloads.digits import Digits, read_digits
from accelsweep.workloads.random_images import RandomImages


def test_the_digits_are_scikit_learns_scaled_to_one():
    images, classes = read_digits()
    theirs = load_digits()
    assert torch.equal(images.reshape(-1, 64) * 16, torch.tensor(theirs.data, dtype=torch.float32))
    assert torch.equal(classes, torch.tensor(theirs.target))


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


def test_random_images_are_fresh_never_zero_and_repeat_with_the_seed():
    def batches(seed):
        return list(islice(RandomImages(batch_size=4, seed=seed, image_size=5).train_dataloader(), 3))

    first, second, _ = (images for images, _ in batches(1))
    assert first.shape == (4, 3, 5, 5)
    assert not torch.equal(first, second)
    assert (first != 0).all()
    assert torch.equal(first, batches(1)[0][0])
    assert not torch.equal(first, batches(2)[0][0])


def test_ranks_and_loader_processes_make_different_noise(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    mine = next(iter(RandomImages(batch_size=2).train_dataloader()))[0]
    monkeypatch.setenv("RANK", "1")
    theirs = next(iter(RandomImages(batch_size=2).train_dataloader()))[0]
    assert not torch.equal(mine, theirs)
    helped = [images for images, _ in islice(RandomImages(batch_size=2, num_workers=2).train_dataloader(), 2)]
    assert not torch.equal(*helped)
