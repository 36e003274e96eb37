"""Kinds of device that Lightning has no name for: an Accelerator of ours for each, built on torch's module for it."""

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


class NamedAccelerator(Accelerator):
    """The devices of a kind, by their numbers. A subclass says which kind."""

    kind = ""

    def setup_device(self, device: torch.device) -> None:
        """Make `device` the current one."""
        kind_of(self.kind).select_device(device.index or 0)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Return nothing: the window reads what it needs itself."""
        del device
        return {}

    def teardown(self) -> None:
        """Give back what the allocator keeps."""
        kind_of(self.kind).empty_cache(torch.device(self.kind))

    @staticmethod
    def parse_devices(devices: Any) -> Any:
        """Return the number, or the list of numbers, as it is."""
        return devices

    @classmethod
    def get_parallel_devices(cls, devices: Any) -> list[torch.device]:
        """Return the devices with the numbers below `devices`, or with those in it."""
        return [torch.device(cls.kind, index) for index in (range(devices) if isinstance(devices, int) else devices)]

    @classmethod
    def auto_device_count(cls) -> int:
        """Return how many torch finds."""
        return int(torch.get_device_module(cls.kind).device_count())

    @classmethod
    def is_available(cls) -> bool:
        """Return whether torch finds one."""
        return kind_of(cls.kind).unavailable_reason() is None

    @classmethod
    def name(cls) -> str:
        """Return the name of the kind."""
        return cls.kind


def registered(kind: str) -> None:
    """Let Lightning know the kind by its name, once."""
    if kind not in AcceleratorRegistry:
        made = type(f"{kind.title()}Accelerator", (NamedAccelerator,), {"kind": kind})
        AcceleratorRegistry.register(kind, made, description=f"{kind}, by torch's module for it")


def settings_for(kind: str, precision: str, place: RankPlace, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the Trainer's arguments for a run on this kind; `settings` are the user's.

    For a kind that it does not know Lightning takes the CPU as the single device, and CUDA's autocast.
    """
    if kind_of(kind).known_to_lightning:
        return settings | {"accelerator": kind, "precision": precision}
    registered(kind)
    device = kind_of(kind).select_device(place.local_rank)
    chosen: dict[str, Any] = {"accelerator": kind, "precision": precision}
    if place.size == 1 and settings.get("strategy") in (None, DEFAULTS["strategy"]):
        chosen["strategy"] = SingleDeviceStrategy(device=device)
    if precision.endswith("-mixed"):
        plugins: list[Any] = [*(settings.get("plugins") or ()), MixedPrecision(precision, device=kind)]  # type: ignore[arg-type]
        chosen |= {"precision": None, "plugins": plugins}
    return settings | chosen


# `trainer.strategy=fsdp`: Lightning's strategy around torch's FullyShardedDataParallel, on a CPU's processes too.


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


# Ranks that train side by side and share nothing: the control of data parallelism (`trainer=side_by_side`).

SIDE_BY_SIDE = "side_by_side"
"""Its name in `trainer.strategy`."""


class SideBySide(DDPStrategy):
    """DDP's processes without DDP: no gradient is exchanged, so that each rank trains a module of its own.

    The ranks begin and end the window together, as under DDP. Each still reads its own part of the data.
    """

    def configure_ddp(self) -> None:
        """Leave the module as it is, where DDP wraps it to exchange gradients."""


def register() -> None:
    """Let Lightning know the strategy by its name."""
    StrategyRegistry.register(SIDE_BY_SIDE, SideBySide, "ranks that exchange nothing", override=True)
