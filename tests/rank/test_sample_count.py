"""How many samples a loader's batches hold: what it states, what its batches show, or what the module says."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from accelsweep.base.errors import InputError
from accelsweep.rank.loops.sample_count import SampleCount

MODULE = SimpleNamespace()


class Bare:
    """A loader that states nothing."""

    def __init__(self, *batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def detections(count):
    """Return so many images with their boxes, between one and three, as a set for object detection gives them."""
    return [
        (torch.zeros(3, 8, 8), {"boxes": torch.zeros(1 + number % 3, 4), "labels": torch.zeros(1 + number % 3)})
        for number in range(count)
    ]


def side_by_side(samples):
    return tuple(zip(*samples, strict=True))


def counted(loader, batch_size, module=MODULE):
    count = SampleCount(batch_size)
    return [count.of(batch, loader, module) for batch in loader]


def test_images_beside_mappings_of_boxes_are_counted_by_image_and_never_by_channel():
    loader = DataLoader(detections(21), batch_size=8, collate_fn=side_by_side)
    assert counted(loader, 8) == [8, 8, 5]
    with pytest.raises(InputError, match=r"first batch holds 8 samples although batch_size=3"):
        counted(loader, 3)


@pytest.mark.parametrize("channels", [2, 3, 8])
def test_a_list_of_images_is_counted_by_what_its_loader_states(channels):
    images = [torch.zeros(channels, 8, 8) for _ in range(20)]
    assert counted(DataLoader(images, batch_size=8, collate_fn=list), 8) == [8, 8, 4]
    assert counted(DataLoader(images[:7], batch_size=3, collate_fn=list), 3) == [3, 3, 1]


def test_pairs_of_two_are_counted_by_their_first_dimension_also_where_the_last_batch_is_short():
    rows = [(torch.zeros(4), torch.zeros(4)) for _ in range(5)]
    assert counted(DataLoader(rows, batch_size=2), 2) == [2, 2, 1]


def test_targets_of_all_images_in_one_tensor_do_not_hide_the_images():
    def stacked(samples):
        images, targets = side_by_side(samples)
        return torch.stack(images), torch.cat([target["boxes"] for target in targets])

    assert counted(DataLoader(detections(20), batch_size=8, collate_fn=stacked), 8) == [8, 8, 4]


def test_what_shows_nowhere_in_the_batch_is_refused_whatever_batch_size_says():
    loader = DataLoader(detections(16), batch_size=8, collate_fn=lambda samples: torch.stack([samples[0][0]] * 5))
    for batch_size in (5, 8):
        with pytest.raises(
            InputError, match=r"its loader states 8, and it looks like 5: define samples\(self, batch\)"
        ):
            counted(loader, batch_size)


def test_a_loader_that_states_nothing_must_give_batches_with_one_reading():
    pair = (torch.zeros(8, 4), torch.zeros(8, 4))
    with pytest.raises(InputError, match=r"states no batch_size, and it looks like 2 or 8: define samples"):
        counted(Bare(pair), 8)
    with pytest.raises(InputError, match=r"states no batch_size, and it looks like 2: define samples"):
        counted(Bare((torch.zeros(8, 2), torch.zeros(37, 6))), 2)
    assert counted(Bare((torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))), 8) == [8]
    with pytest.raises(InputError, match=r"a object batch holds: .* nothing in it tells: put a tensor"):
        counted(Bare(object()), 8)


def test_the_first_of_several_loaders_is_counted():
    loaders = {"a": DataLoader(torch.zeros(12, 2), batch_size=8), "b": DataLoader(torch.zeros(12, 2), batch_size=4)}
    assert SampleCount(8).of({"a": torch.zeros(8, 2), "b": torch.zeros(4, 2)}, loaders, MODULE) == 8


def test_the_modules_own_samples_decides_and_a_method_of_that_name_with_other_arguments_does_not():
    class Graphs:
        def samples(self, batch):
            return batch.graphs

    class Generative:
        def samples(self, count):
            raise AssertionError

    batches = Bare(SimpleNamespace(graphs=8), SimpleNamespace(graphs=3))
    assert counted(batches, 8, Graphs()) == [8, 3]
    assert counted(DataLoader(torch.zeros(8, 2), batch_size=8), 8, Generative()) == [8]
    with pytest.raises(InputError, match=r"Graphs\.samples\(batch\) returned None"):
        counted(Bare(SimpleNamespace(graphs=None)), 8, Graphs())


def sequences(rows, *shape):
    """Return a set of so many rows, each a tensor of `shape`."""
    return [torch.zeros(*shape) for _ in range(rows)]


def time_major(rows):
    """Put samples (time, ...) side by side as (time, samples, ...), as sequence models expect them."""
    return torch.stack(rows, 1)


def pair(collate):
    return lambda rows: (collate(rows), collate(rows))


def padded(*lengths):
    """Return a collate that pads each batch's sentences to the next of these lengths, samples first."""
    to = iter(lengths)
    return lambda rows: torch.zeros(len(rows), next(to))


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


@pytest.mark.parametrize(
    ("rows", "collate"),
    [
        (sequences(156, 32, 3), time_major),
        (sequences(156, 32), time_major),
        (sequences(156, 32), pair(time_major)),
        (sequences(156, 32, 32), time_major),
        (sequences(156, 32), lambda rows: {"x": time_major(rows), "lengths": torch.zeros(len(rows))}),
        (sequences(156, 3, 32, 32), torch.stack),
        (sequences(156, 32), torch.stack),
        (sequences(156, 32), list),
    ],
    ids=[
        "time, samples, features",
        "time, samples",
        "inputs and targets, both time-major",
        "as many features as moments",
        "lengths beside them",
        "square images",
        "samples first",
        "a list of sequences",
    ],
)
def test_a_short_last_batch_is_counted_also_where_another_dimension_is_as_long_as_a_batch(rows, collate):
    assert sum(counted(DataLoader(rows, batch_size=32, collate_fn=collate), 32)) == 156


@pytest.mark.parametrize("stream", [False, True])
def test_sentences_that_are_padded_to_the_size_of_a_batch_once_are_counted_by_sentence(stream):
    rows, lengths = sequences(156, 1), (32, 40, 20, 32, 28)
    loader = DataLoader(Stream(rows) if stream else rows, batch_size=32, collate_fn=padded(*lengths))
    assert counted(loader, 32) == [32, 32, 32, 32, 28]


def test_moments_that_vary_are_not_taken_for_samples():
    lengths = iter([32, 40, 20, 32, 32])
    loader = DataLoader(sequences(156, 1), batch_size=32, collate_fn=lambda rows: torch.zeros(next(lengths), len(rows)))
    assert counted(loader, 32) == [32, 32, 32, 32, 28]


def test_a_collate_that_drops_broken_samples_is_counted_by_the_dimension_that_all_columns_share():
    kept = iter([32, 31, 32, 32, 28])

    def collate(rows):
        count = next(kept)
        return torch.zeros(count, 3, 32, 32), torch.zeros(count)

    assert counted(DataLoader(sequences(156, 1), batch_size=32, collate_fn=collate), 32) == [32, 31, 32, 32, 28]


@pytest.mark.parametrize("shape", [(32, 28), (32, 20)])
def test_a_stream_whose_batches_may_be_read_in_two_ways_is_refused(shape):
    """Nobody knows how many samples a stream's last batch has: sentences of 28 words, or 28 sentences."""
    shapes = iter([(32, 32), shape])
    loader = DataLoader(Stream(range(60)), batch_size=32, collate_fn=lambda _: torch.zeros(*next(shapes)))
    with pytest.raises(InputError, match=rf"may hold {shape[1]} or 32 samples: define samples\(self, batch\)"):
        counted(loader, 32)


def test_images_of_a_stream_are_counted_by_their_first_dimension():
    loader = DataLoader(Stream(sequences(60, 3, 32, 32)), batch_size=32)
    assert counted(loader, 32) == [32, 28]
