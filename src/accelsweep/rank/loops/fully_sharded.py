"""`trainer.strategy=fsdp`: Lightning's strategy around torch's FullyShardedDataParallel, on a CPU's processes too."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from lightning.fabric.strategies.fsdp import _setup_activation_checkpointing
from lightning.pytorch.plugins.precision import FSDPPrecision
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import Module

from accelsweep.core.cells.trainer import FSDP


class FullySharded(FSDPStrategy):
    """Lightning's FSDPStrategy, its arguments and its defaults, with two gaps mended.

    torch shards on a CPU if it is told the device; Lightning tells it a GPU's number. And Lightning would shard the
    shards of a module that is validated after its training.
    """

    _sharded: Module | None = None

    def _setup_model(self, model: Module) -> Module:
        """Return `model` in its wrapper, which is the same one for as long as the model is."""
        if self._sharded is None or self._sharded.module is not model:
            on_host = self.root_device.type == "cpu"
            self._sharded = self._on_host(model) if on_host else super()._setup_model(model)
        return self._sharded

    def _on_host(self, model: Module) -> FullyShardedDataParallel:
        """Return what Lightning makes of `model`, with the device by its name."""
        sharded = FullyShardedDataParallel(
            module=model,
            mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy,
            device_id=self.root_device,
            **self.kwargs,
        )
        _setup_activation_checkpointing(sharded, self._activation_checkpointing_kwargs)
        return sharded


class HostPrecision(FSDPPrecision):
    """Lightning's precision for FSDP, with the CPU's autocast where it has CUDA's."""

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the context of a step."""
        if self.precision == "bf16-mixed":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return super().forward_context()


def with_fsdp(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's `settings` with the strategies above in the place of Lightning's names for it."""
    strategy = settings.get("strategy")
    if strategy in FSDP:
        settings = settings | {"strategy": FullySharded(cpu_offload=strategy == "fsdp_cpu_offload")}
    if isinstance(settings.get("strategy"), FullySharded) and settings["accelerator"] == "cpu":
        plugins = [*(settings.get("plugins") or ()), HostPrecision(settings["precision"])]
        settings = settings | {"precision": None, "plugins": plugins}
    return settings
