"""Intel's GPUs, as Linux shows them: discrete ones, driven by `i915` or `xe`.

ZE_AFFINITY_MASK hides them. With ZE_ENABLE_PCI_ID_DEVICE_ORDER they are counted in the order of their PCI addresses:
https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#environment-variables
Nothing here was ever run on Intel's hardware (docs/devices.md).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.devices.backend import DeviceKind, Gpu, QueueKind

if TYPE_CHECKING:
    import torch
    from torch.profiler import ProfilerActivity

DRM = Path("/sys/class/drm")

INTEL = "0x8086"

AFFINITY_VARIABLE = "ZE_AFFINITY_MASK"

ORDER = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"

XPU_MODELS = {
    "0x0bd5": "Intel Data Center GPU Max 1550",
    "0x0bda": "Intel Data Center GPU Max 1100",
    "0x56c0": "Intel Data Center GPU Flex 170",
    "0x56c1": "Intel Data Center GPU Flex 140",
    "0x56a0": "Intel Arc A770",
    "0x56a1": "Intel Arc A750",
    "0xe20b": "Intel Arc B580",
}
"""PCI device ids, from pci.ids. Any other device is named by its id."""


class XpuKind(DeviceKind):
    """Intel's GPUs as a kind of device: each is leased by its index, and a run sees only its own. No state is read."""

    accelerator, heeds = "xpu", ("ZE_",)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the visible devices: the index for ZE_AFFINITY_MASK, and the PCI address."""
        return visible_gpus()

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variables that show a process these devices; nothing where there is no such device to hide."""
        return {AFFINITY_VARIABLE: ",".join(names), ORDER: "1"} if names or machine_gpus() else {}

    def hardware(self) -> dict[str, str]:
        """Return the models of all the machine's devices as `intel_device`; empty where there are none."""
        models = sorted({gpu.model for gpu in machine_gpus()})
        return {"intel_device": ", ".join(models)} if models else {}


def machine_gpus(drm: Path | None = None) -> tuple[Gpu, ...]:
    """Return the machine's discrete Intel GPUs in the order of their PCI addresses. `drm` is the folder of Linux."""
    cards = (card for card in (drm or DRM).glob("card*") if "-" not in card.name)
    found = sorted((_address(card), card) for card in cards if _text(card / "device/vendor") == INTEL and _memory(card))
    return tuple(Gpu(str(index), address, _model(card), _memory(card)) for index, (address, card) in enumerate(found))


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the devices that ZE_AFFINITY_MASK leaves; a mask of sub-devices (`0.1`) shows their device."""
    machine, mask = machine_gpus(), os.environ.get(AFFINITY_VARIABLE)
    if mask is None:
        return machine
    asked = [part.strip().partition(".")[0] for part in mask.split(",")]
    return tuple(gpu for gpu in machine if gpu.name in asked)


def _address(card: Path) -> str:
    return (card / "device").resolve().name


def _model(card: Path) -> str:
    number = _text(card / "device/device") or "unknown"
    return XPU_MODELS.get(number, f"Intel GPU {number}")


def _memory(card: Path) -> int | None:
    """Return the memory of the device's own; None for a GPU inside a processor. i915 has one file, xe one a tile."""
    files = [card / "lmem_total_bytes", *card.glob("device/tile*/physical_vram_size_bytes")]
    sizes = [int(text, 0) for file in files if (text := _text(file))]
    return sum(sizes) or None


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


# Intel's GPUs. Never run on hardware (docs/devices.md).


class TorchXpu(QueueKind):
    """Intel's GPUs."""

    collectives = "xccl"

    @property
    def profiler_activity(self) -> ProfilerActivity:
        """What the profiler records of it."""
        from torch.profiler import ProfilerActivity

        return ProfilerActivity.XPU

    def __init__(self) -> None:
        """Take torch.xpu."""
        super().__init__("xpu")

    def absent(self) -> str | None:
        """Return why torch finds no device: its build, or the driver."""
        import torch

        if torch.xpu.is_available():
            return None
        built = torch.version.xpu
        why = "it was built without XPU" if built is None else f"it was built for XPU {built}; xpu-smi may say more"
        return f"finds no Intel GPU here: {why}"

    def identity(self, device: torch.device) -> None:
        """Return None: no driver is asked about these devices."""
