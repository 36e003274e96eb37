"""Finite sets: whatever brings the batches to the device, the same ones are trained on; folds; contradictions."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from accelsweep.errors import InputError, Unsupported
from accelsweep.worker.loops.raw_parts import mover
from accelsweep.workloads.data_module import FiniteData
from accelsweep.workloads.image_models import SmallCNN
from accelsweep.workloads.training_stream import LazyRows, TensorRows, TensorSubset

DATA = Path(__file__).parents[2] / "conf" / "data"
CPU = torch.device("cpu")


class Pictures(FiniteData):
    """50 images in memory whose every byte is the image's number, which is its target too."""

    def read(self):
        return self.split(TensorRows(*map(torch.stack, zip(*map(picture, range(50)), strict=True))))


class Files(FiniteData):
    """The same images, read one by one."""

    def read(self):
        return self.split(LazyRows(range(50), picture))


def picture(number):
    return torch.full((3, 4, 4), number, dtype=torch.uint8), torch.tensor(number)


def trained_on(data, count=12):
    """The batches as the training step gets them."""
    data.setup("fit")
    return [data.on_after_batch_transfer(batch, 0) for batch in islice(data.train_dataloader(), count)]


def same(left, right):
    return all(torch.equal(*parts) for pair in zip(left, right, strict=True) for parts in zip(*pair, strict=True))


PLAIN = {"batch_size": 8, "seed": 3, "device": CPU}


@pytest.mark.parametrize("kind", [Pictures, Files])
@pytest.mark.parametrize(
    "delivery",
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
def test_the_same_batches_are_trained_on_however_they_are_delivered(kind, delivery):
    assert same(trained_on(Pictures(**PLAIN)), trained_on(kind(**{**PLAIN, **delivery})))


@pytest.mark.parametrize("kind", [Pictures, Files])
@pytest.mark.parametrize(
    "delivery",
    [
        {"preprocess": "cpu", "num_workers": 2},
        {"preprocess": "device"},
        {"preprocess": "device", "placement": "resident"},
    ],
    ids=["workers", "device", "resident"],
)
def test_preprocessing_gives_the_same_images_wherever_it_is_done(kind, delivery):
    reference = trained_on(Pictures(**PLAIN, preprocess="cpu", crop_padding=2))
    assert same(reference, trained_on(kind(**PLAIN, **delivery, crop_padding=2)))
    other_seed = trained_on(Pictures(**{**PLAIN, "seed": 4}, preprocess="cpu", crop_padding=2))
    assert not same(reference, other_seed)


def test_preprocessing_on_the_device_leaves_bytes_to_the_copy():
    data = Pictures(**PLAIN, preprocess="device")
    images, _, _ = next(iter(data.train_dataloader()))
    assert images.dtype is torch.uint8
    assert data.on_after_batch_transfer((images, torch.zeros(8)), 0)[0].dtype is torch.float32


def test_each_pass_and_each_seed_has_crops_of_its_own():
    def draws(seed):
        stream = iter(Pictures(**{**PLAIN, "seed": seed}, preprocess="device").train_dataloader())
        return torch.cat([next(stream)[2] for _ in range(10)])

    first_pass, second_pass = draws(1).chunk(2)
    assert not torch.equal(first_pass, second_pass)
    assert not torch.equal(first_pass, draws(2)[: len(first_pass)])


def test_without_preprocessing_images_are_scaled_to_one():
    for kind in (Pictures, Files):
        images, numbers = trained_on(kind(**PLAIN), 1)[0]
        torch.testing.assert_close(images[:, 0, 0, 0] * 255, numbers.float())


def test_validation_images_are_normalised_and_never_cropped_or_mirrored():
    for where in ("cpu", "device"):
        data = Pictures(**PLAIN, preprocess=where, mean=0.25, std=0.5)
        images, numbers = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
        expected = ((numbers / 255 - 0.25) / 0.5)[:, None, None, None].expand_as(images)
        torch.testing.assert_close(images, expected)


@pytest.mark.parametrize("preprocess", [None, "device"])
def test_ranks_train_on_different_samples_in_one_pass(preprocess, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    seen = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        seen.append(
            {
                int(number)
                for _, numbers in trained_on(Pictures(**PLAIN, preprocess=preprocess), 2)
                for number in numbers
            }
        )
    assert not seen[0] & seen[1]
    assert len(seen[0]) == len(seen[1]) == 16


def test_the_folds_hold_out_every_sample_once():
    held_out = []
    for fold in range(4):
        data = Pictures(**PLAIN, folds=4, fold=fold, placement="resident")
        mine = torch.cat([numbers for _, numbers in data.val_dataloader()]).tolist()
        training = {int(number) for _, numbers in trained_on(data, 30) for number in numbers}
        assert not training & set(mine)
        assert data.epoch_samples == (50 - len(mine)) // PLAIN["batch_size"] * PLAIN["batch_size"], "in whole batches"
        held_out += mine
    assert sorted(held_out) == list(range(50))
    with pytest.raises(InputError, match=r"data\.fold=4 is none of the 4 folds"):
        Pictures(**PLAIN, folds=4, fold=4).setup("fit")


@pytest.mark.parametrize("kind", [Pictures, Files])
@pytest.mark.parametrize("placement", ["loader", "resident"])
def test_one_fold_after_the_other_is_held_out_of_a_set_that_is_read_once(kind, placement):
    read = []

    class Counting(kind):
        def read(self):
            read.append(1)
            return super().read()

    together = Counting(**PLAIN, folds=4, fold="all", placement=placement)
    together.setup("fit")
    for fold in range(4):
        alone = kind(**PLAIN, folds=4, fold=fold, placement=placement)
        assert same(trained_on(together), trained_on(alone))
        assert same(together.val_dataloader(), alone.val_dataloader())
        assert together.epoch_samples == alone.epoch_samples
        assert together.next_fold() is (fold < 3)
    assert read == [1]


def test_a_part_of_a_set_in_memory_is_no_copy():
    whole = TensorRows(torch.arange(10.0))
    part = TensorSubset(whole, torch.tensor([7, 3]))
    assert len(part) == 2
    assert part.take(torch.tensor([1]))[0].tolist() == [3.0]
    assert part.to(CPU).tensors[0].data_ptr() == whole.tensors[0].data_ptr()


def test_all_folds_need_their_number_and_a_set_that_is_not_divided_already():
    with pytest.raises(InputError, match=r"data\.fold=all .* set data\.folds"):
        Pictures(**PLAIN, fold="all").setup("fit")

    class Divided(Pictures):
        def read(self):
            return Pictures.read(Pictures(**PLAIN))

    with pytest.raises(InputError, match=r"data\.fold=all: this set has a validation set of its own"):
        Divided(**PLAIN, folds=4, fold="all").setup("fit")


def test_the_set_is_read_once_and_its_size_is_known_then():
    read = []

    class Counting(Pictures):
        def read(self):
            read.append(1)
            return super().read()

    data = Counting(**PLAIN)
    assert data.epoch_samples is None
    for stage in ("fit", "validate"):
        data.setup(stage)
    assert (data.epoch_samples, read) == (40, [1])


@pytest.mark.parametrize(
    ("delivery", "why"),
    [
        ({"placement": "pinned"}, "copies to a GPU"),
        ({"placement": "resident", "num_workers": 1}, r"data\.num_workers cannot"),
        ({"placement": "resident", "preprocess": "cpu"}, r"data\.preprocess=cpu cannot"),
    ],
)
def test_keys_that_contradict_each_other_or_the_device_are_unsupported_with_a_reason(delivery, why):
    with pytest.raises(Unsupported, match=why):
        Pictures(**PLAIN, **delivery).setup("fit")


def test_what_is_no_image_cannot_be_preprocessed():
    class Numbers(FiniteData):
        def read(self):
            return self.split(TensorRows(torch.randn(20, 3), torch.zeros(20)))

    with pytest.raises(Unsupported, match="for images, and this set holds none"):
        Numbers(**PLAIN, preprocess="cpu").setup("fit")


@pytest.mark.parametrize("kind", [Pictures, Files])
@pytest.mark.parametrize(("placement", "where"), [("loader", "cpu"), ("resident", "device")])
def test_auto_preprocesses_images_where_they_are(kind, placement, where):
    delivery = {**PLAIN, "placement": placement, "crop_padding": 2}
    stated, found = kind(**delivery, preprocess=where), kind(**delivery, preprocess="auto")
    assert same(trained_on(stated), trained_on(found))
    assert found.preprocess == where


def test_auto_leaves_what_is_no_image_alone():
    class Numbers(FiniteData):
        def read(self):
            return self.split(
                TensorRows(torch.randn(20, 3, generator=torch.Generator().manual_seed(1)), torch.zeros(20))
            )

    for placement in ("loader", "resident"):
        delivery = {**PLAIN, "placement": placement}
        assert same(trained_on(Numbers(**delivery)), trained_on(Numbers(**delivery, preprocess="auto")))


def test_an_unknown_placement_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'resident'"):
        Pictures(batch_size=8, placement="resdent")
    with pytest.raises(InputError, match="none of null, cpu, device, auto"):
        Pictures(batch_size=8, preprocess="gpu")


OURS = ("digits", "wine", "breast_cancer", "random_images", "random_vectors", "random_tokens", "random_text")


@pytest.mark.parametrize("name", OURS)
def test_every_sets_config_builds_it_and_has_the_axes(name):
    settings = OmegaConf.to_container(OmegaConf.load(DATA / f"{name}.yaml"))
    assert {"placement", "num_workers", "prefetch_factor"} <= set(settings)
    data = instantiate({**settings, "batch_size": 4}, _convert_="all")
    inputs, targets = next(iter(data.train_dataloader()))
    assert len(inputs) == len(targets) == 4


@pytest.mark.real
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "bf16-true", "64-true"])
@pytest.mark.parametrize("preprocess", [None, "cpu", "device"])
def test_images_reach_the_module_in_the_numbers_that_it_computes_with(precision, preprocess):
    """What is made on the device comes after Lightning with_convert_modes the batch, so the data module has to."""
    seen = []

    class Seeing(SmallCNN):
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
    trainer.fit(Seeing(width=2, channels=3, classes=50), Pictures(**PLAIN, preprocess=preprocess))
    expected = {"bf16-true": torch.bfloat16, "64-true": torch.float64}.get(precision, torch.float32)
    assert seen == [expected, expected]


def test_a_bare_loop_gets_the_same_numbers_from_preprocessing_on_the_device():
    module = SmallCNN(width=2, channels=3, classes=50).to(torch.bfloat16)
    data = Pictures(**PLAIN, preprocess="device")
    move = mover(module, data, CPU, torch.bfloat16)
    images, _ = move(next(iter(data.train_dataloader())))
    assert images.dtype is torch.bfloat16
    assert module.training_step((images, torch.zeros(8, dtype=torch.long)), 0).isfinite()
