"""Finite data sets: every way to the device trains on the same batches; folds; contradicting options."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from accelsweep.errors import InputError, Unsupported
from accelsweep.worker.loops.trainer_replacement import batch_mover
from accelsweep.workloads.data_module import FiniteData
from accelsweep.workloads.image_models import SmallCNN
from accelsweep.workloads.training_stream import LazyRows, TensorRows

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
OPTIONS = {"batch_size": 8, "seed": 3, "device": CPU}


def image(number):
    return torch.full((3, 4, 4), number, dtype=torch.uint8), torch.tensor(number)


class InMemory(FiniteData):
    """50 images whose every byte is the image's number, which is its target too."""

    def read(self):
        return self.split(TensorRows(*map(torch.stack, zip(*map(image, range(50)), strict=True))))


class Files(FiniteData):
    """The same images, read one by one."""

    def read(self):
        return self.split(LazyRows(range(50), image))


class Numbers(FiniteData):
    """Rows that are no images."""

    def read(self):
        rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
        return self.split(TensorRows(rows, torch.zeros(20)))


EITHER = pytest.mark.parametrize("kind", [InMemory, Files])


def trained_on(data, count=12):
    """The batches as the training step gets them."""
    return [data.on_after_batch_transfer(batch, 0) for batch in islice(data.train_dataloader(), count)]


def same(left, right):
    return all(torch.equal(*parts) for pair in zip(left, right, strict=True) for parts in zip(*pair, strict=True))


@EITHER
@pytest.mark.parametrize(
    "options",
    [
        {"placement": "resident"},
        {"num_workers": 2, "prefetch_factor": 3},
        pytest.param(
            {"placement": "pinned", "device": torch.device("cuda")},
            marks=pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
        ),
    ],
    ids=["resident", "workers", "pinned"],
)
def test_the_same_batches_are_trained_on_however_they_are_delivered(kind, options):
    assert same(trained_on(InMemory(**OPTIONS)), trained_on(kind(**{**OPTIONS, **options})))


@EITHER
@pytest.mark.parametrize(
    "options",
    [
        {"preprocess": "cpu", "num_workers": 2},
        {"preprocess": "device"},
        {"preprocess": "device", "placement": "resident"},
    ],
    ids=["workers", "device", "resident"],
)
def test_preprocessing_gives_the_same_images_wherever_it_is_done(kind, options):
    reference = trained_on(InMemory(**OPTIONS, preprocess="cpu", crop_padding=2))
    assert same(reference, trained_on(kind(**OPTIONS, **options, crop_padding=2)))
    other_seed = trained_on(InMemory(**{**OPTIONS, "seed": 4}, preprocess="cpu", crop_padding=2))
    assert not same(reference, other_seed)


def test_preprocessing_on_the_device_copies_bytes():
    data = InMemory(**OPTIONS, preprocess="device")
    images, _, _ = next(iter(data.train_dataloader()))
    assert images.dtype is torch.uint8
    assert data.on_after_batch_transfer((images, torch.zeros(8)), 0)[0].dtype is torch.float32


def test_each_pass_and_each_seed_has_its_own_crops():
    def draws(seed):
        stream = iter(InMemory(**{**OPTIONS, "seed": seed}, preprocess="device").train_dataloader())
        return torch.cat([next(stream)[2] for _ in range(10)])

    first_pass, second_pass = draws(1).chunk(2)
    assert not torch.equal(first_pass, second_pass)
    assert not torch.equal(first_pass, draws(2)[: len(first_pass)])


@EITHER
def test_without_preprocessing_images_are_scaled_to_one(kind):
    images, numbers = trained_on(kind(**OPTIONS), 1)[0]
    torch.testing.assert_close(images[:, 0, 0, 0] * 255, numbers.float())


@EITHER
def test_images_are_scaled_too_if_rows_are_repeated_to_fill_a_batch(kind):
    data = kind(**{**OPTIONS, "batch_size": 64})
    data.repeats_rows = True
    images, numbers = trained_on(data, 1)[0]
    torch.testing.assert_close(images[:, 0, 0, 0] * 255, numbers.float())
    assert data.epoch_samples == 40


@pytest.mark.parametrize("preprocess", ["cpu", "device"])
def test_validation_images_are_normalised_and_never_cropped_or_mirrored(preprocess):
    data = InMemory(**OPTIONS, preprocess=preprocess, mean=0.25, std=0.5)
    images, numbers = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    expected = ((numbers / 255 - 0.25) / 0.5)[:, None, None, None].expand_as(images)
    torch.testing.assert_close(images, expected)


@pytest.mark.parametrize("preprocess", [None, "device"])
def test_ranks_train_on_different_samples_in_one_pass(preprocess, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        batches = trained_on(InMemory(**OPTIONS, preprocess=preprocess), 2)
        seen.append({int(number) for _, numbers in batches for number in numbers})
    assert not seen[0] & seen[1]
    assert len(seen[0]) == len(seen[1]) == 16


def test_the_folds_hold_out_every_sample_once():
    held_out = []
    for fold in range(4):
        data = InMemory(**OPTIONS, folds=4, fold=fold, placement="resident")
        numbers = torch.cat([numbers for _, numbers in data.val_dataloader()]).tolist()
        training = {int(number) for _, numbers in trained_on(data, 30) for number in numbers}
        assert not training & set(numbers)
        assert data.epoch_samples == (50 - len(numbers)) // 8 * 8, "in whole batches"
        held_out += numbers
    assert sorted(held_out) == list(range(50))
    with pytest.raises(InputError, match=r"data\.fold=4 is not one of the 4 folds"):
        InMemory(**OPTIONS, folds=4, fold=4).setup("fit")


@EITHER
@pytest.mark.parametrize("placement", ["loader", "resident"])
def test_all_folds_are_held_out_in_turn_of_a_set_that_is_read_once(kind, placement):
    reads = []

    class Counting(kind):
        def read(self):
            reads.append(1)
            return super().read()

    together = Counting(**OPTIONS, folds=4, fold="all", placement=placement)
    for fold in range(4):
        alone = kind(**OPTIONS, folds=4, fold=fold, placement=placement)
        assert same(trained_on(together), trained_on(alone))
        assert same(together.val_dataloader(), alone.val_dataloader())
        assert together.epoch_samples == alone.epoch_samples
        assert together.next_fold() is (fold < 3)
    assert reads == [1]


def test_all_folds_need_their_number_and_a_set_without_a_validation_set():
    with pytest.raises(InputError, match=r"data\.fold=all .* set data\.folds"):
        InMemory(**OPTIONS, fold="all").setup("fit")

    class Divided(InMemory):
        def read(self):
            return InMemory.read(InMemory(**OPTIONS))

    with pytest.raises(InputError, match=r"data\.fold=all: this data set has its own validation set"):
        Divided(**OPTIONS, folds=4, fold="all").setup("fit")


def test_the_set_is_read_once_and_its_size_is_known_then():
    reads = []

    class Counting(InMemory):
        def read(self):
            reads.append(1)
            return super().read()

    data = Counting(**OPTIONS)
    assert data.epoch_samples is None
    for stage in ("fit", "validate"):
        data.setup(stage)
    assert (data.epoch_samples, reads) == (40, [1])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"placement": "pinned"}, "copies to dedicated GPU memory"),
        ({"placement": "resident", "num_workers": 1}, r"data\.num_workers cannot"),
        ({"placement": "resident", "preprocess": "cpu"}, r"data\.preprocess=cpu cannot"),
    ],
)
def test_options_that_contradict_each_other_or_the_device_are_unsupported_with_a_reason(options, why):
    with pytest.raises(Unsupported, match=why):
        InMemory(**OPTIONS, **options).setup("fit")


def test_only_images_can_be_preprocessed():
    with pytest.raises(Unsupported, match="for images, and this data set contains none"):
        Numbers(**OPTIONS, preprocess="cpu").setup("fit")


@EITHER
@pytest.mark.parametrize(("placement", "preprocess"), [("loader", "cpu"), ("resident", "device")])
def test_auto_preprocesses_images_where_they_are(kind, placement, preprocess):
    options = {**OPTIONS, "placement": placement, "crop_padding": 2}
    data = kind(**options, preprocess="auto")
    assert same(trained_on(kind(**options, preprocess=preprocess)), trained_on(data))
    assert data.preprocess == preprocess


@pytest.mark.parametrize("placement", ["loader", "resident"])
def test_auto_leaves_other_data_unchanged(placement):
    options = {**OPTIONS, "placement": placement}
    assert same(trained_on(Numbers(**options)), trained_on(Numbers(**options, preprocess="auto")))


def test_an_unknown_choice_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'resident'"):
        InMemory(batch_size=8, placement="resdent")
    with pytest.raises(InputError, match="not one of null, cpu, device, auto"):
        InMemory(batch_size=8, preprocess="gpu")


NEEDS_NOTHING = ("digits", "wine", "breast_cancer", "random_images", "random_vectors", "random_tokens", "random_text")


@pytest.mark.parametrize("name", NEEDS_NOTHING)
def test_the_config_of_every_set_builds_it_and_has_the_axes(name):
    settings = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / "data" / f"{name}.yaml"))
    assert {"placement", "num_workers", "prefetch_factor"} <= set(settings)
    data = instantiate({**settings, "batch_size": 4}, _convert_="all")
    inputs, targets = next(iter(data.train_dataloader()))
    assert len(inputs) == len(targets) == 4


def test_the_guide_lists_every_shipped_set_and_nothing_else():
    table = (ROOT / "docs" / "workloads.md").read_text().split("## Data")[1]
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE))))
    configs = (ROOT / "conf" / "data").glob("*.yaml")
    assert listed == {path.stem for path in configs if "placement" in OmegaConf.load(path)}


@pytest.mark.real
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
@pytest.mark.parametrize("preprocess", [None, "cpu", "device"])
def test_images_reach_the_module_in_the_dtype_of_its_precision(precision, preprocess):
    """Preprocessing on the device comes after Lightning converted the batch, so the data module has to convert."""
    seen = []

    class Recording(SmallCNN):
        def training_step(self, batch, number):
            seen.append(batch[0].dtype)
            return super().training_step(batch, number)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        accelerator="cpu",
        precision=precision,
        max_steps=2,
        limit_val_batches=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Recording(width=2, channels=3, classes=50), InMemory(**OPTIONS, preprocess=preprocess))
    expected = {"bf16-true": torch.bfloat16, "64-true": torch.float64}.get(precision, torch.float32)
    assert seen == [expected, expected]


def test_the_raw_loop_gets_the_same_dtype_from_preprocessing_on_the_device():
    module = SmallCNN(width=2, channels=3, classes=50).to(torch.bfloat16)
    data = InMemory(**OPTIONS, preprocess="device")
    move = batch_mover(module, data, CPU, torch.bfloat16)
    images, _ = move(next(iter(data.train_dataloader())))
    assert images.dtype is torch.bfloat16
    assert module.training_step((images, torch.zeros(8, dtype=torch.long)), 0).isfinite()
