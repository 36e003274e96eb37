"""Extends Lightning: accelerators for additional device kinds, FSDP on CPUs, and ranks that exchange no gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from lightning.fabric.strategies.fsdp import _setup_activation_checkpointing
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.accelerators.accelerator import Accelerator
from lightning.pytorch.plugins.precision import FSDPPrecision, MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy, StrategyRegistry
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn import Module

from accelsweep.devices.kinds import kind_of
from accelsweep.trainer_arguments import DEFAULTS, FSDP
from accelsweep.worker.rank_setup import RankPlace


class KindAccelerator(Accelerator):
    """Base accelerator for a device kind, backed by the matching torch module. Subclasses set `kind`."""

    kind = ""

    def setup_device(self, device: torch.device) -> None:
        """Make `device` the current device."""
        kind_of(self.kind).select_device(device.index or 0)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Return an empty mapping: the window reads its own statistics."""
        del device
        return {}

    def teardown(self) -> None:
        """Empty the allocator's cache."""
        kind_of(self.kind).empty_cache(torch.device(self.kind))

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """Return the number of devices, or the list of indices, unchanged."""
        return devices

    @classmethod
    def get_parallel_devices(cls, devices: Any) -> list[torch.device]:
        """Return the first `devices` devices, or those with the given indices."""
        return [torch.device(cls.kind, index) for index in (range(devices) if isinstance(devices, int) else devices)]

    @classmethod
    def auto_device_count(cls) -> int:
        """Return the number of devices that torch detects."""
        return int(torch.get_device_module(cls.kind).device_count())

    @classmethod
    def is_available(cls) -> bool:
        """Return whether torch detects a device of this kind."""
        return kind_of(cls.kind).unavailable_reason() is None

    @classmethod
    def name(cls) -> str:
        """Return the name of the kind."""
        return cls.kind


def register_accelerator(kind: str) -> None:
    """Register the kind's accelerator with Lightning, unless already registered."""
    if kind not in AcceleratorRegistry:
        accelerator = type(f"{kind.title()}Accelerator", (KindAccelerator,), {"kind": kind})
        AcceleratorRegistry.register(kind, accelerator, description=f"{kind}, using its torch module")


def device_arguments(kind: str, precision: str, place: RankPlace, settings: dict[str, Any]) -> dict[str, Any]:
    """Add the Trainer's arguments for a run on this device kind to the user's `settings`.

    For kinds unknown to Lightning, this sets the single-device strategy and autocast, because Lightning defaults to the
    CPU and to CUDA's autocast.
    """
    if kind_of(kind).known_to_lightning:
        return settings | {"accelerator": kind, "precision": precision}
    register_accelerator(kind)
    device = kind_of(kind).select_device(place.local_rank)
    chosen: dict[str, Any] = {"accelerator": kind, "precision": precision}
    if place.size == 1 and settings.get("strategy") in (None, DEFAULTS["strategy"]):
        chosen["strategy"] = SingleDeviceStrategy(device=device)
    if precision.endswith("-mixed"):
        plugins: list[Any] = [*(settings.get("plugins") or ()), MixedPrecision(precision, device=kind)]  # type: ignore[arg-type]
        chosen |= {"precision": None, "plugins": plugins}
    return settings | chosen


class FullySharded(FSDPStrategy):
    """Lightning's FSDPStrategy with two fixes.

    torch can shard on a CPU if it is passed the device, but Lightning passes a GPU index. Lightning would also wrap a
    module a second time when it is validated after training.
    """

    _sharded: Module | None = None

    def _setup_model(self, model: Module) -> Module:
        """Return the wrapped `model`, reusing the same wrapper each time."""
        if self._sharded is None or self._sharded.module is not model:
            on_cpu = self.root_device.type == "cpu"
            self._sharded = self._shard_on_cpu(model) if on_cpu else super()._setup_model(model)
        return self._sharded

    def _shard_on_cpu(self, model: Module) -> FullyShardedDataParallel:
        """Wrap `model` as Lightning's `_setup_model` does, but pass the device instead of its index."""
        sharded = FullyShardedDataParallel(
            module=model,
            mixed_precision=self.mixed_precision_config,
            sharding_strategy=self.sharding_strategy,
            device_id=self.root_device,
            **self.kwargs,
        )
        _setup_activation_checkpointing(sharded, self._activation_checkpointing_kwargs)
        return sharded


class CpuFSDPPrecision(FSDPPrecision):
    """Lightning's precision plugin for FSDP, with the CPU's autocast instead of CUDA's."""

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return the autocast context of a step."""
        if self.precision == "bf16-mixed":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return super().forward_context()


def replace_fsdp(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's `settings` with Lightning's FSDP names replaced by `FullySharded`."""
    strategy = settings.get("strategy")
    if strategy in FSDP:
        settings = settings | {"strategy": FullySharded(cpu_offload=strategy == "fsdp_cpu_offload")}
    if isinstance(settings.get("strategy"), FullySharded) and settings["accelerator"] == "cpu":
        plugins = [*(settings.get("plugins") or ()), CpuFSDPPrecision(settings["precision"])]
        settings = settings | {"precision": None, "plugins": plugins}
    return settings


INDEPENDENT_RANKS = "independent_ranks"
"""The name that selects `IndependentRanksStrategy` in `trainer.strategy`."""


class IndependentRanksStrategy(DDPStrategy):
    """DDP without gradient exchange: each rank trains its own module, as a control for data parallelism.

    As with DDP, ranks start and end the window together and read separate parts of the data.
    """

    def configure_ddp(self) -> None:
        """Do not wrap the module in DistributedDataParallel."""


def register_independent_ranks() -> None:
    """Register the strategy with Lightning."""
    StrategyRegistry.register(
        INDEPENDENT_RANKS, IndependentRanksStrategy, "ranks that exchange no gradients", override=True
    )
