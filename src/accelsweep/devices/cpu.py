"""The processor: its name, the cores that this process may use, its memory.

The name is part of every record's fingerprint: another text for the same processor measures all sweeps again.
"""

from __future__ import annotations

import functools
import hmac
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from accelsweep.devices import linux
from accelsweep.devices.backend import DeviceKind, DeviceMemory
from accelsweep.devices.clock import Clock, ClockMarks, Marks
from accelsweep.devices.kinds import Device
from accelsweep.devices.linux import cpu_quota, usable_cores
from accelsweep.devices.memory_limits import FreeMemory, begin_peak, give_back_at_once, own_bytes, take_no_more_than
from accelsweep.errors import Unsupported

if TYPE_CHECKING:
    import torch
    from torch.profiler import ProfilerActivity

CPUINFO = Path("/proc/cpuinfo")


class CpuKind(DeviceKind):
    """The processor as a kind of device: one model, its cores are counted, and every run may use all of them.

    It is in every fingerprint as the host, and its state is read with the host's.
    """

    accelerator = "cpu"

    def inventory(self) -> tuple[Device, ...]:
        """Return the processor with the cores and the memory that this process may use."""
        return (Device(accelerator="cpu", model=cpu_model(), count=usable_cores(), memory_bytes=memory_bytes()),)

    def refuses(self, precision: str) -> str | None:
        """Return why a CPU cannot train at a precision; None where nothing speaks against it."""
        if precision == "16-mixed":
            return "16-mixed needs a GPU: torch's fp16 autocast does not train on a CPU (bf16-mixed does)"
        return super().refuses(precision)


@functools.cache
def cpu_model() -> str:
    """Return the processor's name as the system shows it."""
    if sys.platform == "darwin":
        return sysctl("machdep.cpu.brand_string") or platform.processor()
    return model_in(CPUINFO)


def sysctl(name: str) -> str:
    """Return macOS's value under this name, or nothing."""
    command = ["/usr/sbin/sysctl", "-n", name]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def model_in(cpuinfo: Path) -> str:
    """Return the name that Linux's file `cpuinfo` has for the processor; on ARM it may only have the board's."""
    named = _first_line(cpuinfo, "model name") or _first_line(cpuinfo, "Model")
    return named or platform.processor() or platform.machine()


def _first_line(path: Path, key: str) -> str | None:
    """Return the text after the colon of the first line of `path` that begins with `key`, or None."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key) and ":" in line), None)


def memory_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or what its control groups grant of them."""
    machine, group = int(psutil.virtual_memory().total), linux.memory_limit()
    return machine if group is None else min(machine, group)


# The facts of this machine that stay the same while a run lasts, as every record states them.

MACHINE_ID = Path("/etc/machine-id")


def machine_identity() -> str | None:
    """Return 16 hexadecimal digits that stay the same for this machine; None where the system has no identity.

    The system's own identity is confidential (man machine-id), so it is the key of a hash and never written itself.
    Images of containers leave it empty, or all containers of one image share it.
    """
    try:
        identity = MACHINE_ID.read_text().strip() if sys.platform != "darwin" else sysctl("kern.uuid")
    except OSError:
        return None
    return hmac.new(identity.encode(), b"accelsweep", "sha256").hexdigest()[:16] if identity else None


def host_facts() -> dict[str, Any]:
    """Return the host's name and identity, processor, cores, memory in bytes, system and Python; null where unknown."""
    return {
        "host": socket.gethostname(),
        "machine": machine_identity(),
        "cpu_model": cpu_model(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_usable": usable_cores(),
        "cgroup_cpu_quota": cpu_quota(),
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


# A bound on the host memory that this process may take, and the peak that it then reaches.


class HostBound:
    """A bound on the data of this process; the peak is that of its resident set, above what it was."""

    def __init__(self, room: FreeMemory, headroom: float) -> None:
        """`headroom` is the share of `room` that stays free. Raises Unsupported where no process can be bounded."""
        self.bytes, self.limit = int(room.bytes * (1 - headroom)), room.limit
        _start_threads()
        give_back_at_once()
        self._before = begin_peak()
        if not take_no_more_than(self.bytes):
            raise Unsupported("task=memory_frontier on a CPU bounds the memory of a process, which needs Linux")

    def peak(self) -> int:
        """Return how far the resident set rose."""
        return max(0, own_bytes("VmHWM") - self._before)


def _start_threads() -> None:
    """Start torch's threads now: their stacks are no part of a batch, and no thread starts where memory is short."""
    import torch

    torch.ones(2**20).sum()


# The host's processor as torch drives it: every operation is done when its call returns.


class CpuDevice:
    """The host. Nothing to wait for."""

    asynchronous = False

    def synchronise(self) -> None:
        """Return at once: an operation on a CPU is done when its call returns."""

    def marks(self, clock: Clock) -> Marks:
        """Begin marks on the host's clock."""
        return ClockMarks(clock)


class TorchCpu:
    """The processor. Its ranks share its cores and its memory."""

    collectives, pins, tf32, known_to_lightning = "gloo", False, False, True

    @property
    def profiler_activity(self) -> ProfilerActivity:
        """What the profiler records of it."""
        from torch.profiler import ProfilerActivity

        return ProfilerActivity.CPU

    def absent(self) -> None:
        """Return None: there always is one."""

    def initialised(self) -> bool:
        """Return False: a processor has no state of its own that a fork would break."""
        return False

    def of_rank(self, local_rank: int) -> torch.device:
        """Return the processor: all ranks have the same."""
        import torch

        del local_rank
        return torch.device("cpu")

    def waited(self, device: torch.device) -> CpuDevice:
        """Return the host."""
        del device
        return CpuDevice()

    def model(self, device: torch.device) -> str:
        """Return the processor's name."""
        del device
        return cpu_model()

    def identity(self, device: torch.device) -> None:
        """Return None: the processor's state is read with its host's."""

    def allocated_bytes(self, device: torch.device) -> None:
        """Return None: the host's memory is read as the host's."""

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return reasons."""
        del device
        why = "a CPU has no device allocator; see host_pss_bytes"
        return DeviceMemory(None, None, None, dict.fromkeys(("allocated", "reserved", "device"), why))

    def release(self, device: torch.device) -> None:
        """Do nothing: freed memory is the host's again."""

    def bound(self, device: torch.device, headroom: float, stated: int | None, host: FreeMemory) -> HostBound:
        """Bound the data of this process: a CPU has no allocator of its own. `stated` is in `host` already."""
        del device, stated
        return HostBound(host, headroom)
