"""One DataModule for every finite set that we ship or read: its split, its preprocessing and its way to the device.

A subclass provides the rows. The axes `placement`, `preprocess`, `num_workers`, `prefetch_factor`, `folds` and `fold`
are the same for all. With the same seed they all train on the same batches, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Required, TypedDict, TypeVar

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from accelsweep.devices.inventory import torch_kind
from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.workloads.training_stream import (
    EndlessBatches,
    Excerpt,
    Items,
    Preprocess,
    RepeatedRows,
    Rows,
    Tensors,
    WholeSet,
    loader_of,
    rank_and_size,
)

AnyRows = TypeVar("AnyRows", bound=Rows)

SPLIT_SEED = 20_240_229
"""Seed of the split into training and validation rows: the same for every run, so that quality is comparable."""

VALIDATION_BATCH = 512
"""Rows of a validation batch."""

PLACEMENTS = ("loader", "pinned", "resident")

AUTO = "auto"

ALL = "all"

PREPROCESSING = (None, "cpu", "device", AUTO)


class Delivery(TypedDict, total=False):
    """The keys of `FiniteData` that every data set hands on; their meanings stand there."""

    batch_size: Required[int]
    seed: int
    device: torch.device | None
    placement: str
    preprocess: str | None
    num_workers: int
    prefetch_factor: int | None
    validation_share: float
    folds: int | None
    fold: int | str
    mean: float | Sequence[float]
    std: float | Sequence[float]
    crop_padding: int
    flip: bool


class FiniteData(pl.LightningDataModule):
    """A finite set as an endless training stream and a fixed validation set."""

    full_scale = 255.0
    """The byte that means 1 in this set's images."""

    def __init__(
        self,
        batch_size: int,
        seed: int = 0,
        device: torch.device | None = None,
        placement: str = "loader",
        preprocess: str | None = None,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        validation_share: float = 0.2,
        folds: int | None = None,
        fold: int | str = 0,
        mean: float | Sequence[float] = 0.5,
        std: float | Sequence[float] = 0.5,
        crop_padding: int = 4,
        flip: bool = True,
    ) -> None:
        """`batch_size` is per rank; `seed` orders the training rows; `device` is where the run trains.

        `placement`: batches from the loader's memory, from pinned memory, or from a set that is copied to the device
        once. `preprocess` of images is only a scaling to 0..1 (None), or crop, flip and normalisation. The loader
        (`cpu`) does these, or the device after the copy (`device`). `auto` takes the place of the images, and does
        nothing for other data. `validation_share` of the rows is held out, or the `fold`-th of `folds` parts. `all`
        holds out one part after the other: the first, until `next_fold`. The set is read and placed once.
        """
        super().__init__()
        _known("placement", placement, PLACEMENTS)
        _known("preprocess", preprocess, PREPROCESSING)
        self.batch_size, self.seed, self.device = batch_size, seed, device
        self.placement, self.preprocess = placement, preprocess
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self._share, self._folds, self._fold = validation_share, folds, fold
        self._plain = Preprocess(self.full_scale)
        self._augment = Preprocess(self.full_scale, _numbers(mean), _numbers(std), crop_padding, flip)
        self._sets: tuple[Rows, Rows] | None = None
        self._whole: Rows | None = None
        self._held_out = 0
        self.repeats_rows = False

    def read(self) -> tuple[Rows, Rows]:
        """Return the training rows and the validation rows: inputs first, then targets. Images are uint8."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its rows are")

    def split(self, rows: AnyRows) -> tuple[AnyRows, AnyRows]:
        """Return `rows` in two parts, for training and validation, by share or by fold; the same in every run.

        With `fold=all` both are all of the rows, of which `next_fold` makes parts.
        """
        if self._fold == ALL:
            return rows, rows
        training, validation = self._parts(len(rows), self._fold)
        return rows.subset(training), rows.subset(validation)

    def _parts(self, count: int, fold: int | str) -> tuple[Tensor, Tensor]:
        """Return the numbers of the training and of the validation rows among `count`."""
        order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
        begin, end = 0, int(count * self._share)
        if self._folds is not None:
            if not isinstance(fold, int) or not 0 <= fold < self._folds:
                raise InputError(f"data.fold={fold} is none of the {self._folds} folds: they count from 0")
            begin, end = count * fold // self._folds, count * (fold + 1) // self._folds
        return torch.cat((order[:begin], order[end:])), order[begin:end]

    def next_fold(self) -> bool:
        """Hold out the next part of the set, which stays where it lies; False without `fold=all` or after the last."""
        if self._whole is None or self._held_out + 1 == self._folds:
            return False
        self._hold_out(self._whole, self._held_out + 1)
        return True

    def _hold_out(self, whole: Rows, fold: int) -> None:
        training, validation = (_part(whole, rows) for rows in self._parts(len(whole), fold))
        self._sets, self._whole, self._held_out = (training, validation), whole, fold

    @property
    def epoch_samples(self) -> int | None:
        """Samples of one pass over the training set, of all ranks: those of whole batches; None before `setup`."""
        if self._sets is None:
            return None
        rows, (_, ranks) = len(self._sets[0]), rank_and_size()
        if self.repeats_rows:
            return rows
        return rows // ranks // self.batch_size * self.batch_size * ranks

    def setup(self, stage: str) -> None:
        """Read the set, once, and put it where it belongs. Raises Unsupported where keys contradict each other."""
        del stage
        if self._sets is not None:
            return
        self._check()
        training, validation = self.read()
        if self.preprocess == AUTO:
            self.preprocess = self._fitting(training)
        if self._fold != ALL:
            self._sets = self._placed(training), self._placed(validation)
        elif training is validation:
            self._hold_out(self._placed(training), 0)
        else:
            raise InputError("data.fold=all: this set has a validation set of its own; leave it out to have folds")

    def _check(self) -> None:
        if self._fold == ALL and self._folds is None:
            raise InputError("data.fold=all holds out one part after the other: set data.folds, the number of parts")
        if self.placement == "pinned" and (self.device is None or not torch_kind(self.device.type).pins):
            raise Unsupported(
                "data.placement=pinned: pinned memory is for copies to a GPU's own memory, and this run has none"
            )
        if self.placement != "resident":
            return
        if self.device is None:
            raise InputError("data.placement=resident: no device was given to the data module")
        if self.num_workers or self.preprocess == "cpu":
            key = "num_workers" if self.num_workers else "preprocess=cpu"
            raise Unsupported(
                f"data.placement=resident leaves nothing to the host, so data.{key} cannot be used with it"
            )

    def _fitting(self, rows: Rows) -> str | None:
        """Return the meaning of `auto`: images are preprocessed by the loader, or on the device if they lie there."""
        if isinstance(rows, Tensors) and rows.tensors[0].dtype is not torch.uint8:
            return None
        return "device" if self.placement == "resident" else "cpu"

    def _placed(self, rows: Rows) -> Rows:
        if self.placement == "resident" and isinstance(rows, Items):
            rows = rows.in_memory()
        if not isinstance(rows, Tensors):
            return rows
        if self.placement == "resident":
            assert self.device is not None
            rows = rows.to(self.device)
        images, *rest = rows.tensors
        if self.preprocess is None and images.dtype is torch.uint8:
            return Tensors(self._plain.normalised(images), *rest)
        if self.preprocess is not None and images.dtype is not torch.uint8:
            raise Unsupported(f"data.preprocess={self.preprocess} is for images, and this set holds none")
        return rows

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the endless stream of this rank."""
        training, _ = self._ready()
        if self.repeats_rows:
            training = RepeatedRows.enough(training, self.batch_size)
        augment = None if self.preprocess is None else self._augment
        return self._loader(EndlessBatches(training, self.batch_size, self.seed, augment, self._finish(training)))

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the whole validation set, the same on every rank."""
        _, validation = self._ready()
        whole = WholeSet(validation, VALIDATION_BATCH, self._finish(validation))
        return self._loader(whole) if isinstance(validation, Items) else loader_of(whole)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Preprocess on the device if `preprocess` says so, into the number type of the module."""
        del dataloader_idx
        if self.preprocess != "device":
            return batch
        module = getattr(self.trainer, "lightning_module", None)
        return self._augment(batch, torch.float32 if module is None else module.dtype)

    def _ready(self) -> tuple[Rows, Rows]:
        self.setup("fit")
        assert self._sets is not None
        return self._sets

    def _finish(self, rows: Rows) -> Preprocess | None:
        """The loader's work on each batch; images in memory without preprocessing were scaled once."""
        plain = self._plain if isinstance(rows, Items) else None
        return {None: plain, "cpu": self._augment, "device": None}[self.preprocess]

    def _loader(self, batches: Any) -> DataLoader[Any]:
        return loader_of(batches, self.num_workers, self.placement == "pinned", self.prefetch_factor)


def _part(whole: Rows, rows: Tensor) -> Rows:
    return Excerpt(whole, rows) if isinstance(whole, Tensors) else whole.subset(rows)


def _known(key: str, value: str | None, known: Sequence[str | None]) -> None:
    if value not in known:
        names = ["null" if name is None else name for name in known]
        raise InputError(f"data.{key}={value} is none of {', '.join(names)}{nearest(str(value), names)}")


def _numbers(value: float | Sequence[float]) -> float | tuple[float, ...]:
    return value if isinstance(value, int | float) else tuple(value)


# `data=module`: the LightningModule's own loaders, to train, validate and predict, where it brings its data itself.


class ModuleData(pl.LightningDataModule):
    """Hands out the loaders of a module. The module is given `batch_size` if its `__init__` names it."""

    def __init__(self) -> None:
        """The module is told later, by `serve`."""
        super().__init__()
        self._module: pl.LightningModule | None = None

    def serve(self, module: pl.LightningModule) -> None:
        """Hand out the loaders of `module`, that for prediction where it defines one."""
        self._module = module
        if type(module).predict_dataloader is not pl.LightningModule.predict_dataloader:
            self.predict_dataloader = module.predict_dataloader  # type: ignore[method-assign]

    def train_dataloader(self) -> Any:
        """Return the module's training loader. Raises InputError where it has none."""
        assert self._module is not None, "serve comes first"
        if type(self._module).train_dataloader is pl.LightningModule.train_dataloader:
            raise InputError(
                f"data=module, but {type(self._module).__name__} defines no train_dataloader: define it, or name a "
                "LightningDataModule with data._target_=mypackage.MyData"
            )
        return self._module.train_dataloader()

    def val_dataloader(self) -> Any:
        """Return the module's validation loader, or none at all."""
        assert self._module is not None, "serve comes first"
        if type(self._module).val_dataloader is pl.LightningModule.val_dataloader:
            return []
        return self._module.val_dataloader()
