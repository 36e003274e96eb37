"""Intel's discrete GPUs as listed by Linux with the `i915` or `xe` driver. Untested on hardware (docs/devices.md).

ZE_AFFINITY_MASK restricts which of them are visible. If ZE_ENABLE_PCI_ID_DEVICE_ORDER is set, they are numbered by PCI
address:
https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#environment-variables
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.devices.device_kind import DeviceKind, Gpu

if TYPE_CHECKING:
    import torch

DRM = Path("/sys/class/drm")

INTEL_VENDOR = "0x8086"

AFFINITY_VARIABLE = "ZE_AFFINITY_MASK"

ORDER_VARIABLE = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"

MODELS = {
    "0x0bd5": "Intel Data Center GPU Max 1550",
    "0x0bda": "Intel Data Center GPU Max 1100",
    "0x56c0": "Intel Data Center GPU Flex 170",
    "0x56c1": "Intel Data Center GPU Flex 140",
    "0x56a0": "Intel Arc A770",
    "0x56a1": "Intel Arc A750",
    "0xe20b": "Intel Arc B580",
}
"""Models keyed by PCI device ID, from pci.ids. Any other device is named after its ID."""


class XpuKind(DeviceKind):
    """Intel GPUs. Each is leased by index, and only leased GPUs are visible to a run. There is no telemetry."""

    accelerator = "xpu"
    unit, units, site_units = "Intel GPU", "Intel GPUs", "XPU devices"
    own_memory = True
    scheduled_as_gpu = True
    auto_priority = 2
    environment_prefixes = ("ZE_",)
    distributed_backend = "xccl"
    profiler_activity_name = "XPU"

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the devices that ZE_AFFINITY_MASK makes visible; a sub-device (`0.1`) selects its device."""
        machine, mask = machine_gpus(), os.environ.get(AFFINITY_VARIABLE)
        if mask is None:
            return machine
        names = [part.strip().partition(".")[0] for part in mask.split(",")]
        return tuple(gpu for gpu in machine if gpu.name in names)

    def visibility_variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the environment variables that restrict a process to these devices; empty without Intel GPUs."""
        return {AFFINITY_VARIABLE: ",".join(names), ORDER_VARIABLE: "1"} if names or machine_gpus() else {}

    def fingerprint(self) -> dict[str, str]:
        """Return the machine's device models as `intel_device`; empty if there are no devices."""
        models = sorted({gpu.model for gpu in machine_gpus()})
        return {"intel_device": ", ".join(models)} if models else {}

    def unavailable_reason(self) -> str | None:
        """Return why torch detects no device: its build, or a problem that xpu-smi may identify."""
        import torch

        if self._is_known() and torch.xpu.is_available():
            return None
        built = getattr(torch.version, "xpu", None)
        reason = "it was built without XPU" if built is None else f"it was built for XPU {built}; xpu-smi may show why"
        return f"finds no Intel GPU here: {reason}"

    def is_initialised(self) -> bool:
        """Return whether this process has used an Intel GPU."""
        return self._is_known() and super().is_initialised()

    def _is_known(self) -> bool:
        """Return whether this torch supports Intel GPUs, which requires 2.3 or later."""
        import torch

        return hasattr(torch, "xpu")

    def telemetry_identity(self, device: torch.device) -> None:
        """Return None, because there is no telemetry."""


KIND = XpuKind()


def machine_gpus() -> tuple[Gpu, ...]:
    """Return the machine's discrete Intel GPUs, sorted by PCI address."""
    cards = (card for card in DRM.glob("card*") if "-" not in card.name)
    gpus = sorted(
        ((card / "device").resolve().name, _model(card), memory)
        for card in cards
        if _text(card / "device/vendor") == INTEL_VENDOR and (memory := _memory(card))
    )
    return tuple(Gpu(str(index), *gpu) for index, gpu in enumerate(gpus))


def _model(card: Path) -> str:
    device_id = _text(card / "device/device") or "unknown"
    return MODELS.get(device_id, f"Intel GPU {device_id}")


def _memory(card: Path) -> int | None:
    """Return the memory in bytes; None for an integrated GPU.

    The i915 driver provides one file, whereas xe provides one per tile.
    """
    files = [card / "lmem_total_bytes", *card.glob("device/tile*/physical_vram_size_bytes")]
    return sum(int(text, 0) for file in files if (text := _text(file))) or None


def _text(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None
