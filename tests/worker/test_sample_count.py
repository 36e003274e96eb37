"""The samples in a loader's batches: stated by the loader, shown by the batch, or counted by the module."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from one_rank import MEASURE
from own_models import PRELUDE
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from accelsweep.errors import InputError
from accelsweep.worker.loops.sample_count import SampleCounter, no_batch_message, usual_batches_per_step

MODULE = SimpleNamespace()
NUMBERS = itertools.count()


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
    count = SampleCounter(batch_size)
    return [count.count(batch, loader, module) for batch in loader]


def test_images_with_mappings_of_boxes_are_counted_by_image_and_not_by_channel():
    loader = DataLoader(detections(21), batch_size=8, collate_fn=side_by_side)
    assert counted(loader, 8) == [8, 8, 5]
    with pytest.raises(InputError, match=r"first batch contains 8 samples, but batch_size=3"):
        counted(loader, 3)


@pytest.mark.parametrize("channels", [2, 3, 8])
def test_a_list_of_images_is_counted_by_what_its_loader_states(channels):
    images = [torch.zeros(channels, 8, 8) for _ in range(20)]
    assert counted(DataLoader(images, batch_size=8, collate_fn=list), 8) == [8, 8, 4]
    assert counted(DataLoader(images[:7], batch_size=3, collate_fn=list), 3) == [3, 3, 1]


def test_pairs_are_counted_by_their_first_dimension_even_in_a_short_last_batch():
    rows = [(torch.zeros(4), torch.zeros(4)) for _ in range(5)]
    assert counted(DataLoader(rows, batch_size=2), 2) == [2, 2, 1]


def test_targets_of_all_images_in_one_tensor_do_not_hide_the_images():
    def stacked(samples):
        images, targets = side_by_side(samples)
        return torch.stack(images), torch.cat([target["boxes"] for target in targets])

    assert counted(DataLoader(detections(20), batch_size=8, collate_fn=stacked), 8) == [8, 8, 4]


def test_a_stated_size_that_the_batch_does_not_show_is_refused():
    loader = DataLoader(detections(16), batch_size=8, collate_fn=lambda samples: torch.stack([samples[0][0]] * 5))
    for batch_size in (5, 8):
        with pytest.raises(
            InputError, match=r"its loader declares 8, and it looks like 5: define samples\(self, batch\)"
        ):
            counted(loader, batch_size)


def test_batches_of_a_loader_without_batch_size_must_be_unambiguous():
    pair = (torch.zeros(8, 4), torch.zeros(8, 4))
    with pytest.raises(InputError, match=r"declares no batch_size, and it looks like 2 or 8: define samples"):
        counted(Bare(pair), 8)
    with pytest.raises(InputError, match=r"declares no batch_size, and it looks like 2: define samples"):
        counted(Bare((torch.zeros(8, 2), torch.zeros(37, 6))), 2)
    assert counted(Bare((torch.zeros(8, 4), torch.zeros(8, dtype=torch.long))), 8) == [8]
    with pytest.raises(InputError, match=r"a object batch contains: .* none of its parts has a length: add a tensor"):
        counted(Bare(object()), 8)


def test_the_first_of_several_loaders_is_counted():
    loaders = {"a": DataLoader(torch.zeros(12, 2), batch_size=8), "b": DataLoader(torch.zeros(12, 2), batch_size=4)}
    assert SampleCounter(8).count({"a": torch.zeros(8, 2), "b": torch.zeros(4, 2)}, loaders, MODULE) == 8


def test_the_modules_samples_method_decides_unless_its_arguments_differ():
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


class Stream(IterableDataset):
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
def test_a_short_last_batch_is_counted_even_if_another_dimension_equals_the_batch_size(rows, collate):
    assert sum(counted(DataLoader(rows, batch_size=32, collate_fn=collate), 32)) == 156


@pytest.mark.parametrize("stream", [False, True])
def test_sentences_padded_to_the_batch_size_are_counted_by_sentence(stream):
    rows, lengths = sequences(156, 1), (32, 40, 20, 32, 28)
    loader = DataLoader(Stream(rows) if stream else rows, batch_size=32, collate_fn=padded(*lengths))
    assert counted(loader, 32) == [32, 32, 32, 32, 28]


def test_varying_time_steps_are_not_counted_as_samples():
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
def test_a_stream_of_ambiguous_batches_is_refused(shape):
    """Nobody knows how many samples a stream's last batch has: sentences of 28 words, or 28 sentences."""
    shapes = iter([(32, 32), shape])
    loader = DataLoader(Stream(range(60)), batch_size=32, collate_fn=lambda _: torch.zeros(*next(shapes)))
    with pytest.raises(InputError, match=rf"may contain {shape[1]} or 32 samples: define samples\(self, batch\)"):
        counted(loader, 32)


def test_images_of_a_stream_are_counted_by_their_first_dimension():
    loader = DataLoader(Stream(sequences(60, 3, 32, 32)), batch_size=32)
    assert counted(loader, 32) == [32, 28]


ROWS = TensorDataset(torch.zeros(100, 2))


class Sized(IterableDataset):
    """So many rows in order, with that length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(torch.zeros(self.rows, 2))

    def __len__(self):
        return self.rows


class Buckets:
    """A batch sampler of one's own, which states no size."""

    def __iter__(self):
        return iter([list(range(8))] * 7)

    def __len__(self):
        return 7


def a_pass(loader, batch_size, batches=None, ranks=1, data=None):
    return SampleCounter(batch_size, ranks).epoch_samples(data, loader, batches)


@pytest.mark.parametrize(
    ("loader", "batch_size", "samples"),
    [
        (DataLoader(ROWS, 8), 8, 100),
        (DataLoader(ROWS, 8, drop_last=True), 8, 96),
        (DataLoader(TensorDataset(torch.zeros(5)), 4, drop_last=True), 4, 4),
        (DataLoader([torch.zeros(8, 2)] * 12, batch_size=None), 8, 96),
        (DataLoader(ROWS, 8, sampler=WeightedRandomSampler([1.0] * 100, num_samples=30)), 8, 30),
        (DataLoader(ROWS, 8, sampler=RandomSampler(ROWS, num_samples=42), drop_last=True), 8, 40),
        (DataLoader(ROWS, 8, sampler=SubsetRandomSampler(range(17))), 8, 17),
        (DataLoader(ROWS, batch_sampler=BatchSampler(RandomSampler(ROWS), 8, drop_last=True)), 8, 96),
        (DataLoader(ROWS, batch_sampler=Buckets()), 8, 56),
        (DataLoader(Sized(30), 8), 8, 30),
        (DataLoader(Sized(30), 8, drop_last=True), 8, 24),
        (DataLoader(Sized(30), batch_size=None), 8, 240),
        (Bare(), 8, None),
    ],
    ids=[
        "rows",
        "drop_last",
        "drop_last, 5 rows",
        "batch_size=None",
        "WeightedRandomSampler",
        "RandomSampler(num_samples)",
        "SubsetRandomSampler",
        "BatchSampler",
        "batch sampler of one's own",
        "iterable",
        "iterable, drop_last",
        "iterable of batches",
        "no length",
    ],
)
def test_a_pass_has_the_samples_that_its_loader_gives_and_not_the_rows_of_the_set(loader, batch_size, samples):
    assert a_pass(loader, batch_size) == samples


def test_ranks_pass_over_their_shares_together_padding_included():
    sampler = DistributedSampler(TensorDataset(torch.zeros(5)), num_replicas=2, rank=0, shuffle=False)
    assert a_pass(DataLoader(TensorDataset(torch.zeros(5)), 2, sampler=sampler), 2, ranks=2) == 6
    assert a_pass(DataLoader(Sized(30), 8), 8, ranks=2) is None, "30 may be those of all ranks, or of each"


def test_a_limited_or_repeated_pass_has_other_batches_than_its_loader():
    assert a_pass(DataLoader(ROWS, 8), 8, batches=5) == 40
    short = {"labelled": DataLoader(TensorDataset(torch.zeros(40)), 8), "unlabelled": DataLoader(ROWS, 8)}
    assert a_pass(short, 8, batches=13) == 40 + 40 + 3 * 8
    assert a_pass({"a": DataLoader(ROWS, 8)}, 8, batches=float("inf")) == 100


def test_a_pass_that_ended_is_counted_and_one_that_was_cut_off_is_not():
    count, batch = SampleCounter(8), torch.zeros(8, 2)
    loader = Bare(batch)
    for _ in range(3):
        count.count(batch, loader, MODULE)
    count.pass_ended(complete=True)
    count.count(batch, loader, MODULE)
    count.pass_ended(complete=False)
    assert count.epoch_samples(None, loader) == 24
    assert count.epoch_samples(SimpleNamespace(epoch_samples=50_000), loader) == 50_000, "what the data states counts"


def test_the_samples_of_a_pass_of_uneven_batches_are_unknown_before_it_ended():
    count = SampleCounter(8)
    for rows in (8, 3):
        count.count(torch.zeros(rows, 2), DataLoader([torch.zeros(8, 2)] * 9, batch_size=None), MODULE)
    assert count.epoch_samples(None, DataLoader([torch.zeros(8, 2)] * 9, batch_size=None)) is None


@pytest.mark.parametrize(
    ("situation", "loader", "batch_size", "ranks", "words"),
    [
        (
            "data module divides by world_size, devices=2",
            DataLoader(ROWS, 4),
            8,
            2,
            "that is 8 / 2 ranks. batch_size is the number of samples per rank, but the data divides it by world_size: "
            "add +data.batch_size=16, which it divides into 8 per rank",
        ),
        ("fixed batch in the loader", DataLoader(ROWS, 16), 8, 1, "Measure it with batch_size=16"),
        (
            "one set of a dict three times larger",
            {"unlabelled": DataLoader(ROWS, 24), "labelled": DataLoader(ROWS, 8)},
            8,
            1,
            "samples are counted in the first of several training loaders, 'unlabelled'",
        ),
        ("5 rows with batch 8", DataLoader(TensorDataset(torch.zeros(5)), 8), 8, 1, "the data set has 5 rows. Lower"),
        (
            "10 rows with batch 8, devices=2",
            DataLoader(TensorDataset(torch.zeros(10)), 8, sampler=range(5)),
            8,
            2,
            "the data set has 10 rows, 5 for each of 2 ranks",
        ),
        (
            "a list of loaders of other sizes",
            [DataLoader(ROWS, 6), DataLoader(ROWS, 8)],
            8,
            1,
            "the first of several training loaders, 0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value and len(value) < 50 else "",
)
def test_a_first_batch_of_another_size_is_refused_with_its_cause(
    situation, loader, batch_size, ranks, words, last_line
):
    loaders = loader if isinstance(loader, dict) else dict(enumerate(loader)) if isinstance(loader, list) else None
    batch = next(iter(loader)) if loaders is None else {key: next(iter(each)) for key, each in loaders.items()}
    batch = list(batch.values()) if isinstance(loader, list) else batch
    with pytest.raises(InputError) as told:
        SampleCounter(batch_size, ranks).count(batch, loader, MODULE)
    last_line(situation, str(told.value))
    assert words in str(told.value)


def test_a_loader_without_a_batch_says_how_many_rows_it_has(last_line):
    told = no_batch_message(DataLoader(TensorDataset(torch.zeros(5)), 8, drop_last=True))
    last_line("5 rows with batch 8, drop_last=True", told)
    assert "the data set has 5 rows, and drop_last=True drops a batch of fewer than 8: lower batch_size" in told
    assert no_batch_message(Bare()) == "the training loader yielded no batch: lower batch_size, or keep short batches"


def test_the_usual_optimiser_step_ignores_the_short_last_step_of_a_long_epoch():
    assert usual_batches_per_step([Counter({4: 96, 1: 4})]) == 4
    assert usual_batches_per_step([Counter({4: 94, 1: 6})]) is None
    assert usual_batches_per_step([Counter({1: 9}), Counter({1: 9})]) == 1
    assert usual_batches_per_step([Counter({1: 9}), Counter({2: 4})]) is None, "two optimisers"
    assert usual_batches_per_step([]) is None


# ---- optimiser steps as Lightning makes them

TRAINED = """
class Own(Module):
    {changes}
class OwnData(pl.LightningDataModule):
    def __init__(self, batch_size, rows):
        super().__init__()
        self.batch_size, self.rows = batch_size, rows
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(self.rows, 4), torch.randint(2, (self.rows,))), self.batch_size)
"""
MANUAL = """
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
    def configure_optimizers(self):
        return {optimizers}
    def training_step(self, batch, batch_idx):
        loss = cross_entropy(self.layer(batch[0]), batch[1])
        {step}
"""
SGD_HERE = "torch.optim.SGD(self.parameters(), lr=0.1)"
EVERY_SECOND = """optimizer = self.optimizers({raw})
        {backward}
        if batch_idx % 2:
            optimizer.step(); optimizer.zero_grad()"""
TWO = "[torch.optim.SGD([self.layer.weight], lr=0.1), torch.optim.SGD([self.layer.bias], lr=0.1)]"
CRITIC = """first, second = self.optimizers()
        for _ in range(3):
            first.zero_grad(); self.manual_backward(loss, retain_graph=True); first.step()
        second.zero_grad(); self.manual_backward(loss); second.step()"""
NOW_AND_THEN = """first, second = self.optimizers()
        if batch_idx % 2:
            second.zero_grad(); self.manual_backward(self.layer.bias.sum()); second.step()
        else:
            first.zero_grad(); self.manual_backward(self.layer.weight.sum()); first.step()"""
SCHEDULED = """def configure_callbacks(self):
        return [pl.callbacks.GradientAccumulationScheduler({{0: 2, 3: 4}})]"""


@pytest.fixture
def trained(run, tmp_path):
    """Train a module with these `changes` on so many rows, in a window of 24 batches after 4."""

    def go(changes, rows, accumulate=None, **more):
        name = f"own_steps_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(PRELUDE + TRAINED.format(changes=changes.format()))
        return run(
            model={"_target_": f"{name}.Own"},
            data={"_target_": f"{name}.OwnData", "rows": rows},
            trainer={"strategy": "auto"} | ({} if accumulate is None else {"accumulate_grad_batches": accumulate}),
            measure={**MEASURE, "min_steps": 24, "max_steps": 24},
            **more,
        )

    return go


def doubted(result):
    return next((doubt.message for doubt in result.doubts if doubt.code == "optimizer_batch"), None)


@pytest.mark.parametrize(
    ("changes", "rows", "accumulate", "held", "said"),
    [
        ("pass", 64, 4, 64, "used 2 batches (64 samples), not 4 batches (128 samples)"),
        ("pass", 192, 4, None, "2 batches (64 samples), 50% of the steps or 4 batches (128 samples), 50% of the steps"),
        ("pass", 256, 4, 128, None),
        ("pass", 64, 1, 32, None),
        (SCHEDULED, 128, None, None, "2 batches (64 samples), 50% of the steps or 4 batches (128 samples), 50%"),
        ("manual", 64, None, 64, "used 2 batches (64 samples), not 1 batch (32 samples)"),
        ("manual, torch's own", 64, None, 64, "used 2 batches (64 samples)"),
        ("several steps a batch", 64, None, 32, None),
        ("optimisers in turns", 64, None, 32, None),
        ("never", 64, None, None, "no optimiser step ended in the window"),
    ],
    ids=lambda value: value.strip()[:24] if isinstance(value, str) else "",
)
def test_the_batches_of_an_optimiser_step_are_counted(trained, changes, rows, accumulate, held, said):
    manual = {
        "manual": (SGD_HERE, EVERY_SECOND.format(raw="", backward="self.manual_backward(loss)")),
        "manual, torch's own": (
            SGD_HERE,
            EVERY_SECOND.format(raw="use_pl_optimizer=False", backward="loss.backward()"),
        ),
        "several steps a batch": (TWO, CRITIC),
        "optimisers in turns": (TWO, NOW_AND_THEN),
        "never": (SGD_HERE, "self.manual_backward(loss)"),
    }
    if changes in manual:
        optimizers, step = manual[changes]
        changes = MANUAL.format(optimizers=optimizers, step=step)
    result = trained(changes, rows, accumulate, batch_size=32)
    assert (result.outcome, result.reason) == ("measured", None)
    assert result.effective.global_batch_size == held
    assert (doubted(result) is None) == (said is None)
    assert (said or "") in (doubted(result) or "")
