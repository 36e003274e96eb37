"""`FiniteData`: the DataModule for all finite data sets that are built in or read from files.

A subclass provides the rows. Splitting, preprocessing and transfer to the device (`placement`, `preprocess`,
`num_workers`, `prefetch_factor`, `folds`, `fold`) work the same way for all subclasses, and given the same seed, every
choice yields bit-identical training batches. `ModuleData` (`data=module`) serves the loaders of a LightningModule that
provides its own data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, TypeVar

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from typing_extensions import Required

from accelsweep.devices.kinds import kind_of
from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.workloads.training_stream import (
    EndlessBatches,
    LazyRows,
    Preprocess,
    Rows,
    TensorRows,
    ValidationBatches,
    make_loader,
    repeat_to_one_batch,
    view,
    whole_batch_samples,
)

AnyRows = TypeVar("AnyRows", TensorRows, LazyRows, Rows)

SPLIT_SEED = 20_240_229
"""The seed for splitting training and validation rows, which is the same in every run so that quality is comparable."""

VALIDATION_BATCH = 512
"""The number of rows in a validation batch."""

PLACEMENTS = ("loader", "pinned", "resident")

PREPROCESSING = (None, "cpu", "device", "auto")


class DataOptions(TypedDict, total=False):
    """The keyword arguments that every data set passes on to `FiniteData`, where they are documented."""

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
    """Serves a finite data set as an endless training stream and a fixed validation set."""

    full_scale = 255.0
    """The byte value that corresponds to an intensity of 1.0 in this data set's images."""

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
        """`batch_size` is per rank, `seed` determines the order of training rows, and `device` is the training device.

        `placement`: batches come from pageable memory (`loader`), from pinned memory (`pinned`), or from a data set
        that is copied to the device once (`resident`). `preprocess`: images are only scaled to 0..1 (None), or cropped,
        flipped and normalised by the loader (`cpu`) or after the copy (`device`); `auto` selects one of these two for
        images, depending on the placement, and None for other data. The held-out rows are a fraction `validation_share`
        of the data set, or the `fold`-th of `folds` equal parts. With `fold="all"`, the first part is held out first
        and each call to `next_fold` moves on to the next part; the set is read and placed only once.
        """
        super().__init__()
        _check_choice("placement", placement, PLACEMENTS)
        _check_choice("preprocess", preprocess, PREPROCESSING)
        self.batch_size, self.seed, self.device = batch_size, seed, device
        self.placement, self.preprocess = placement, preprocess
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self._validation_share, self._folds, self._fold = validation_share, folds, fold
        self._scale = Preprocess(self.full_scale)
        self._augment = Preprocess(self.full_scale, _per_channel(mean), _per_channel(std), crop_padding, flip)
        self._sets: tuple[Rows, Rows] | None = None
        self._all_rows: Rows | None = None
        self._current_fold = 0
        self.repeats_rows = False

    def read(self) -> tuple[Rows, Rows]:
        """Return the training rows and the validation rows: inputs first, then targets. Images are uint8."""
        raise NotImplementedError(f"{type(self).__name__} does not define its rows")

    def split(self, rows: AnyRows) -> tuple[AnyRows, AnyRows]:
        """Split the rows into training and validation rows, by share or by fold, in the same way in every run.

        With `fold="all"`, both contain all rows until `next_fold` divides them.
        """
        if self._fold == "all":
            return rows, rows
        training, validation = self._split_numbers(len(rows), self._fold)
        return rows.subset(training), rows.subset(validation)

    def _split_numbers(self, count: int, fold: int | str) -> tuple[Tensor, Tensor]:
        """Return the row numbers of the training rows and of the validation rows in a data set of `count` rows."""
        order = torch.randperm(count, generator=torch.Generator().manual_seed(SPLIT_SEED))
        begin, end = 0, int(count * self._validation_share)
        if self._folds is not None:
            if not isinstance(fold, int) or not 0 <= fold < self._folds:
                raise InputError(f"data.fold={fold} is not one of the {self._folds} folds, which are numbered from 0")
            begin, end = count * fold // self._folds, count * (fold + 1) // self._folds
        return torch.cat((order[:begin], order[end:])), order[begin:end]

    def next_fold(self) -> bool:
        """Hold out the next part without rereading the data set.

        Returns False after the last part, or if `fold` is not "all".
        """
        if self._all_rows is None or self._current_fold + 1 == self._folds:
            return False
        self._hold_out(self._all_rows, self._current_fold + 1)
        return True

    def _hold_out(self, rows: Rows, fold: int) -> None:
        training, validation = (view(rows, numbers) for numbers in self._split_numbers(len(rows), fold))
        self._sets, self._all_rows, self._current_fold = (training, validation), rows, fold

    @property
    def epoch_samples(self) -> int | None:
        """Samples in one pass over the training set, across all ranks, in whole batches; None before `setup`."""
        if self._sets is None:
            return None
        rows = len(self._sets[0])
        return rows if self.repeats_rows else whole_batch_samples(rows, self.batch_size)

    def setup(self, stage: str) -> None:
        """Read the data set and place it, on the first call only.

        Raises Unsupported or InputError for contradictory keys.
        """
        del stage
        if self._sets is not None:
            return
        self._check_options()
        training, validation = self.read()
        if self.preprocess == "auto":
            self.preprocess = self._auto_preprocess(training)
        if self._fold != "all":
            self._sets = self._place(training), self._place(validation)
        elif training is validation:
            self._hold_out(self._place(training), 0)
        else:
            raise InputError("data.fold=all: this data set has its own validation set; remove it to use folds")

    def _check_options(self) -> None:
        if self._fold == "all" and self._folds is None:
            raise InputError("data.fold=all holds out each part in turn: set data.folds to the number of parts")
        if self.placement == "pinned" and (self.device is None or not kind_of(self.device.type).uses_pinned_memory):
            raise Unsupported(
                "data.placement=pinned: pinned memory is for copies to dedicated GPU memory, and this run uses none"
            )
        if self.placement != "resident":
            return
        if self.device is None:
            raise InputError("data.placement=resident: no device was passed to the data module")
        if self.num_workers or self.preprocess == "cpu":
            key = "num_workers" if self.num_workers else "preprocess=cpu"
            raise Unsupported(
                f"data.placement=resident leaves no work to the host, so data.{key} cannot be used with it"
            )

    def _auto_preprocess(self, rows: Rows) -> str | None:
        if isinstance(rows, TensorRows) and rows.tensors[0].dtype is not torch.uint8:
            return None
        return "device" if self.placement == "resident" else "cpu"

    def _place(self, rows: Rows) -> Rows:
        if self.placement == "resident" and isinstance(rows, LazyRows):
            rows = rows.load()
        if not isinstance(rows, TensorRows):
            return rows
        if self.placement == "resident":
            assert self.device is not None
            rows = rows.to(self.device)
        images, *rest = rows.tensors
        if self.preprocess is None and images.dtype is torch.uint8:
            return TensorRows(self._scale.normalize(images), *rest)
        if self.preprocess is not None and images.dtype is not torch.uint8:
            raise Unsupported(f"data.preprocess={self.preprocess} is for images, and this data set contains none")
        return rows

    def train_dataloader(self) -> DataLoader[Any]:
        """Return this rank's endless stream."""
        training, _ = self._placed_sets()
        if self.repeats_rows:
            training = repeat_to_one_batch(training, self.batch_size)
        augment = None if self.preprocess is None else self._augment
        return self._loader(EndlessBatches(training, self.batch_size, self.seed, augment, self._finish(training)))

    def val_dataloader(self) -> DataLoader[Any]:
        """Return the whole validation set, which is identical on every rank."""
        _, validation = self._placed_sets()
        batches = ValidationBatches(validation, VALIDATION_BATCH, self._finish(validation))
        return self._loader(batches) if isinstance(validation, LazyRows) else make_loader(batches)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """If `preprocess` is `device`, preprocess the batch on the device and convert it to the module's dtype."""
        del dataloader_idx
        if self.preprocess != "device":
            return batch
        module = getattr(self.trainer, "lightning_module", None)
        return self._augment(batch, torch.float32 if module is None else module.dtype)

    def _placed_sets(self) -> tuple[Rows, Rows]:
        self.setup("fit")
        assert self._sets is not None
        return self._sets

    def _finish(self, rows: Rows) -> Preprocess | None:
        """Return the preprocessing that the loader applies to each batch, or None.

        If `preprocess` is None, images in memory need no preprocessing, because they have been scaled already.
        """
        if self.preprocess is None:
            return self._scale if isinstance(rows, LazyRows) else None
        return self._augment if self.preprocess == "cpu" else None

    def _loader(self, batches: Any) -> DataLoader[Any]:
        return make_loader(batches, self.num_workers, self.placement == "pinned", self.prefetch_factor)


def _check_choice(key: str, value: str | None, choices: Sequence[str | None]) -> None:
    if value not in choices:
        names = ["null" if name is None else name for name in choices]
        raise InputError(f"data.{key}={value} is not one of {', '.join(names)}{nearest(str(value), names)}")


def _per_channel(value: float | Sequence[float]) -> float | tuple[float, ...]:
    return value if isinstance(value, int | float) else tuple(value)


class ModuleData(pl.LightningDataModule):
    """`data=module`: serves the LightningModule's loaders. Its `__init__` receives `batch_size` if it accepts it."""

    def __init__(self) -> None:
        """The module is created after its data module: see `serve`."""
        super().__init__()
        self._module: pl.LightningModule | None = None

    def serve(self, module: pl.LightningModule) -> None:
        """Serve the loaders of `module`, including a prediction loader if it defines one."""
        self._module = module
        if type(module).predict_dataloader is not pl.LightningModule.predict_dataloader:
            self.predict_dataloader = module.predict_dataloader  # type: ignore[method-assign]

    def train_dataloader(self) -> Any:
        """Return the module's training loader. Raises InputError if the module defines none."""
        assert self._module is not None, "serve comes first"
        if type(self._module).train_dataloader is pl.LightningModule.train_dataloader:
            raise InputError(
                f"data=module, but {type(self._module).__name__} defines no train_dataloader: define it, or select a "
                "LightningDataModule with data._target_=mypackage.MyData"
            )
        return self._module.train_dataloader()

    def val_dataloader(self) -> Any:
        """Return the module's validation loader, or an empty list if it defines none."""
        assert self._module is not None, "serve comes first"
        if type(self._module).val_dataloader is pl.LightningModule.val_dataloader:
            return []
        return self._module.val_dataloader()
