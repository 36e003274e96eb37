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
