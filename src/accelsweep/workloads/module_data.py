"""`data=module`: the LightningModule's own `train_dataloader` and `val_dataloader`, where it brings its data itself."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from accelsweep.core.errors import InputError


class ModuleData(pl.LightningDataModule):
    """Hands out the loaders of a module. The module is given `batch_size` if its `__init__` names it."""

    def __init__(self) -> None:
        """The module is told later, by `serve`."""
        super().__init__()
        self._module: pl.LightningModule | None = None

    def serve(self, module: pl.LightningModule) -> None:
        """Hand out the loaders of `module`. Raises InputError where it has none to train on."""
        if type(module).train_dataloader is pl.LightningModule.train_dataloader:
            raise InputError(
                f"data=module, but {type(module).__name__} defines no train_dataloader: define it, or name a "
                "LightningDataModule with data._target_=mypackage.MyData"
            )
        self._module = module

    def train_dataloader(self) -> Any:
        """Return the module's training loader."""
        assert self._module is not None, "serve comes first"
        return self._module.train_dataloader()

    def val_dataloader(self) -> Any:
        """Return the module's validation loader, or none at all."""
        assert self._module is not None, "serve comes first"
        if type(self._module).val_dataloader is pl.LightningModule.val_dataloader:
            return []
        return self._module.val_dataloader()
