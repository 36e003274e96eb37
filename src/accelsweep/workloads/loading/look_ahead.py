"""Batches that a teacher is shown one batch before the student gets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.errors import Unsupported
from accelsweep.measure.batch_size import stated_size
from accelsweep.workloads.distillation import Distillation
from accelsweep.workloads.training_stream import make_loader, rank_and_size


class _OneAhead(IterableDataset[Any]):
    def __init__(self, loader: Any, module: Distillation, batch_size: int | None) -> None:
        self._loader, self._module, self.batch_size = loader, module, batch_size

    def __iter__(self) -> Iterator[Any]:
        self._module.begin_pass()
        held: list[Any] = []
        for batch in self._loader:
            self._module.coming(batch)
            yield from held
            held = [batch]
        yield from held


def show_ahead(data: pl.LightningDataModule, module: Distillation) -> None:
    """Make the training loader of `data` show each batch to the teacher of `module` before it gives the one before it.

    A loader whose rows several ranks would have to share is refused when it is made: nobody could deal them out.
    """
    real = data.train_dataloader

    def train_dataloader() -> DataLoader[Any]:
        loader = real()
        rows = getattr(loader, "dataset", None)
        if rank_and_size()[1] > 1 and not isinstance(rows, IterableDataset):
            raise Unsupported(
                "distillation on several ranks needs a stream that deals its rows out: give the set with data=dataset"
            )
        return make_loader(_OneAhead(loader, module, stated_size(loader)))

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]
