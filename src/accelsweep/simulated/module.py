"""`torch.simulated`: what torch and its users expect of a device's module, as `torch.cuda` has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accelsweep.machine.drivers import simulated as driver
from accelsweep.simulated.current import current, used


class Event:
    """A mark in the device's queue. Its time is the device's own."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        """Every event keeps its time; `enable_timing` is taken as CUDA takes it."""
        self._moment: float | None = None

    def record(self, stream: Any = None) -> None:
        """Put the mark into the queue."""
        current().mark(self._passed)

    def _passed(self, moment: float) -> None:
        self._moment = moment

    def query(self) -> bool:
        """Return whether the device has passed the mark. Waits for nothing."""
        return self._moment is not None and self._moment <= current().clock.now()

    def synchronize(self) -> None:
        """Wait for the mark, which here is to wait for the whole queue."""
        current().wait("event")

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds from this mark to a later one. Raises RuntimeError before both are passed."""
        if self._moment is None or later._moment is None:
            raise RuntimeError("both events must be recorded and passed before their time is asked for")
        return (later._moment - self._moment) * 1e3


class Module:
    """The functions of the module. There is one device, number 0."""

    Event = Event

    def is_available(self) -> bool:
        """Return whether there is a device."""
        return driver.folder() is not None or used()

    def is_initialized(self) -> bool:
        """Return whether this process has used it."""
        return used()

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """Return 1 or 0."""
        return int(self.is_available())

    def current_device(self) -> int:
        """Return 0."""
        return 0

    def set_device(self, device: Any) -> None:
        """Do nothing: there is one."""

    def synchronize(self, device: Any = None) -> None:
        """Wait until the queue is empty. Raises the first error of an operation since the last wait."""
        current().wait("synchronize")

    def work(self, seconds: float) -> None:
        """Let the device work for so long, as a kernel of known length."""
        current().launch(seconds, lambda: None)

    def manual_seed(self, seed: int) -> None:
        """Do nothing: random numbers are drawn with the CPU's generator."""

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing, as `manual_seed`."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """Return the CPU's."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Do nothing: it is the CPU's, which is set by itself."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the types of autocast. It changes nothing here: the numbers stay as wide as they are."""
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        """Return the model."""
        return current().spec.model

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        """Return name, memory in bytes and the identity that the driver knows."""
        spec = current().spec
        return SimpleNamespace(name=spec.model, total_memory=spec.memory_bytes, uuid=driver.UUID)

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes that tensors hold now."""
        return current().allocator.allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the most that they held since the peaks began."""
        return current().allocator.peak_allocated

    def memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that this process keeps from others."""
        return current().allocator.reserved

    def max_memory_reserved(self, device: Any = None) -> int:
        """Return the most that it kept."""
        return current().allocator.peak_reserved

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the free and the total bytes of the device, other processes' included."""
        device_ = current()
        used_bytes = sum(use.bytes for use in driver.living(device_.presence.folder).values())
        return device_.spec.memory_bytes - used_bytes, device_.spec.memory_bytes

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Let this process reserve no more than this part of the device's memory."""
        current().allocator.most = round(fraction * current().spec.memory_bytes)

    def empty_cache(self) -> None:
        """Keep no more than tensors hold."""
        current().allocator.empty_cache()

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Begin the peaks anew."""
        current().allocator.reset_peaks()
