"""The GPU of an Apple-silicon Mac: one per machine, sharing the host's memory. Its allocator does not record peaks."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from accelsweep.devices.cpu import cpu_model, memory_bytes
from accelsweep.devices.device_kind import Device, DeviceKind, DeviceMemory, MemoryCap, StreamDevice
from accelsweep.devices.memory_limits import FreeMemory

if TYPE_CHECKING:
    import torch


class MpsDevice(StreamDevice):
    """Apple's GPU, for which `torch.mps.synchronize` accepts no device argument."""

    def synchronise(self) -> None:
        """Wait for all work on the GPU."""
        self._module.synchronize()


class MpsKind(DeviceKind):
    """Apple's GPU, which cannot be hidden from a process and needs no name. macOS reports its state only to root.

    In the fingerprint, it is identified by the host's processor.
    """

    accelerator = "mps"
    unit, units, site_units = "Apple GPU", "Apple GPUs", "Apple GPUs"
    auto_priority = 3
    max_per_machine = 1
    uses_pinned_memory = False
    known_to_lightning = True

    def inventory(self, torch: str | None = None) -> tuple[Device, ...]:
        """Return the GPU, or no devices on other machines."""
        del torch
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return ()
        return (Device("mps", _model(), 1, memory_bytes()),)

    def unsupported_precision(self, precision: str) -> str | None:
        """Return why Apple's GPU does not support `precision`."""
        if precision == "64-true":
            return "64-true is unsupported on mps: Apple's GPUs have no 64-bit floating point"
        return super().unsupported_precision(precision)

    def unavailable_reason(self) -> str | None:
        """Return why torch detects no GPU."""
        import torch

        return None if torch.backends.mps.is_available() else "finds no Apple GPU here"

    def is_initialised(self) -> bool:
        """Return False, because nothing is forked on macOS."""
        return False

    def select_device(self, local_rank: int) -> torch.device:
        """Return the only device."""
        import torch

        del local_rank
        return torch.device("mps")

    def timed_device(self, device: torch.device) -> MpsDevice:
        """Return the GPU."""
        return MpsDevice(self.module, device)

    def model_name(self, device: torch.device) -> str:
        """Return the chip's name."""
        del device
        return _model()

    def telemetry_identity(self, device: torch.device) -> None:
        """Return None, because there is no telemetry."""

    def allocated_bytes(self, device: torch.device) -> int:
        """Return the bytes allocated by torch's allocator."""
        del device
        return int(self.module.current_allocated_memory())

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return the bytes that Metal has allocated to this process."""
        del device
        driver = self.module.driver_allocated_memory()
        reasons = {"allocated": "the MPS allocator records no peak", "device": "this process only"}
        return DeviceMemory(None, driver, driver, reasons)

    def reset_peak_memory(self, device: torch.device) -> None:
        """Do nothing: the allocator records no peaks."""

    def cap_memory(
        self, device: torch.device, headroom: float, configured: int | None, host_memory: FreeMemory
    ) -> MemoryCap:
        """Cap the allocator at the recommended working set or below. Untested on hardware (docs/devices.md)."""
        del device, host_memory
        total = int(self.module.recommended_max_memory())
        available = FreeMemory(total, "device memory").capped(configured)
        cap = available.without_headroom(headroom)
        self.module.set_per_process_memory_fraction(cap / total)
        return MemoryCap(cap, available.limit, lambda: None)


KIND = MpsKind()


def _model() -> str:
    return f"{cpu_model()} GPU"  # the system reports a single name for the whole chip
