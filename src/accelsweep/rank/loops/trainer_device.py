"""Kinds of device that Lightning has no name for: an Accelerator of ours for each, built on torch's module for it."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.accelerators.accelerator import Accelerator
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import SingleDeviceStrategy

from accelsweep.core.cells.trainer import DEFAULTS
from accelsweep.measure.devices.kinds import torch_kind
from accelsweep.rank.process import RankPlace


class NamedAccelerator(Accelerator):
    """The devices of a kind, by their numbers. A subclass says which kind."""

    kind = ""

    def setup_device(self, device: torch.device) -> None:
        """Make `device` the current one."""
        torch_kind(self.kind).of_rank(device.index or 0)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """Return nothing: the window reads what it needs itself."""
        del device
        return {}

    def teardown(self) -> None:
        """Give back what the allocator keeps."""
        torch_kind(self.kind).release(torch.device(self.kind))

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
        return torch_kind(cls.kind).absent() is None

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
    if torch_kind(kind).known_to_lightning:
        return settings | {"accelerator": kind, "precision": precision}
    registered(kind)
    device = torch_kind(kind).of_rank(place.local_rank)
    chosen: dict[str, Any] = {"accelerator": kind, "precision": precision}
    if place.size == 1 and settings.get("strategy") in (None, DEFAULTS["strategy"]):
        chosen["strategy"] = SingleDeviceStrategy(device=device)
    if precision.endswith("-mixed"):
        plugins: list[Any] = [*(settings.get("plugins") or ()), MixedPrecision(precision, device=kind)]  # type: ignore[arg-type]
        chosen |= {"precision": None, "plugins": plugins}
    return settings | chosen
