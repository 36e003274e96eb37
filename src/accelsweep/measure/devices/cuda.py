"""NVIDIA's devices and, with a ROCm build of torch, AMD's: torch calls both `cuda`.

https://docs.pytorch.org/docs/stable/notes/cuda.html#asynchronous-execution
https://docs.pytorch.org/docs/stable/notes/hip.html
"""

from __future__ import annotations

from typing import Any

import torch
from torch.profiler import ProfilerActivity

from accelsweep.measure.devices.interface import QueueKind


class TorchCuda(QueueKind):
    """CUDA devices. On AMD's the collectives are RCCL's, which goes by the same name."""

    collectives, tf32, known_to_lightning = "nccl", True, True
    profiler_activity = ProfilerActivity.CUDA

    def __init__(self) -> None:
        """Take torch.cuda."""
        super().__init__("cuda")

    def absent(self) -> str | None:
        """Return why torch finds no device: its build, or something that the driver's own tool may tell."""
        if torch.cuda.is_available():
            return None
        built = torch.version.cuda
        if built is None:
            return "finds no CUDA device here: it was built without CUDA"
        return f"finds no CUDA device here: it was built for CUDA {built}; nvidia-smi may say more"


class TorchRocm(TorchCuda):
    """AMD's devices. HIP's UUIDs are in no form that AMD SMI knows, so they are found by their PCI address."""

    tf32 = False

    def absent(self) -> str | None:
        """Return why torch finds no device."""
        if torch.cuda.is_available():
            return None
        return f"finds no AMD GPU here: it was built for ROCm {torch.version.hip}; amd-smi may say more"

    def identity(self, device: torch.device) -> str | None:
        """Return the PCI address, as AMD SMI writes it."""
        seen: Any = torch.cuda.get_device_properties(device)
        return f"{seen.pci_domain_id:04x}:{seen.pci_bus_id:02x}:{seen.pci_device_id:02x}.0"


def cuda_kind() -> TorchCuda:
    """Return the kind that this build of torch is for."""
    return TorchCuda() if torch.version.hip is None else TorchRocm()
