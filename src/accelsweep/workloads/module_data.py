"""`data=module`: the LightningModule's own loaders, to train, validate and predict, where it brings its data itself."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from accelsweep.base.errors import InputError


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
