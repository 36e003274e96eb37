"""The `fake loader`: training on one batch that is on the device already, the ceiling for every input pipeline.

With `measure.fake_loader: true` the first real batch is moved to the device once and given again at every step. Nothing
is read, decoded, collated or copied any more. So the gain in speed of such a cell is the cost of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities import move_data_to_device
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.core.cells.config import CellConfig
from accelsweep.measure.samples import stated_size
from accelsweep.workloads.building.build import build_data
from accelsweep.workloads.distillation import Distillation
from accelsweep.workloads.loading.look_ahead import show_ahead
from accelsweep.workloads.loading.repeated import repeat_rows
from accelsweep.workloads.loading.stream import loader_of
from accelsweep.workloads.module_data import ModuleData


class _Again(IterableDataset[Any]):
    def __init__(self, batch: Any, batch_size: int | None) -> None:
        self._batch, self.batch_size = batch, batch_size

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._batch


def build_training_data(
    config: CellConfig,
    seed: int,
    device: torch.device,
    module: pl.LightningModule,
    kept: pl.LightningDataModule | None = None,
) -> pl.LightningDataModule:
    """Return the training data of `module`: the config's data, behind a fake loader if the config asks for one.

    A search for the largest batch repeats rows where the data has too few for a batch. `kept` is the data of an earlier
    module, to be used again.
    """
    if kept is None:
        data = build_data(config, seed, device)
    else:
        data = kept
        vars(data).pop("train_dataloader", None)  # what was put around it for the earlier module
    if isinstance(data, ModuleData):
        data.serve(module)
    if config.task == "memory_frontier":
        repeat_rows(data, config.batch_size)
    if config.measure.fake_loader:
        _put_on(device, data)
    if isinstance(module, Distillation):
        show_ahead(data, module)
    return data


def _put_on(device: torch.device, data: pl.LightningDataModule) -> None:
    real = data.train_dataloader

    def train_dataloader() -> DataLoader[Any]:
        loader = real()
        batch = move_data_to_device(next(iter(loader)), device)
        return loader_of(_Again(batch, stated_size(loader)))

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]
