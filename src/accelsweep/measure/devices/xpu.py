"""Intel's GPUs. Never run on hardware (docs/devices.md).

https://docs.pytorch.org/docs/stable/notes/get_start_xpu.html
"""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity

from accelsweep.measure.devices.interface import QueueKind


class TorchXpu(QueueKind):
    """Intel's GPUs."""

    collectives, profiler_activity = "xccl", ProfilerActivity.XPU

    def __init__(self) -> None:
        """Take torch.xpu."""
        super().__init__("xpu")

    def absent(self) -> str | None:
        """Return why torch finds no device: its build, or the driver."""
        if torch.xpu.is_available():
            return None
        built = torch.version.xpu
        why = "it was built without XPU" if built is None else f"it was built for XPU {built}; xpu-smi may say more"
        return f"finds no Intel GPU here: {why}"

    def identity(self, device: torch.device) -> None:
        """Return None: no driver is asked about these devices."""
