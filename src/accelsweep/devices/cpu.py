"""The processor: its name, cores, memory and number formats, facts about its host, and its use by torch.

The name is part of every record's fingerprint, so a different name for the same processor would cause all sweeps to be
measured again.
"""

from __future__ import annotations

import functools
import hmac
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelsweep.devices import host, linux
from accelsweep.devices.clock import Clock, ClockMarks, Marks
from accelsweep.devices.device_kind import Device, DeviceKind, DeviceMemory, MemoryCap
from accelsweep.devices.memory_limits import (
    FreeMemory,
    limit_data_growth,
    process_bytes,
    reset_peak_rss,
    return_freed_blocks,
)
from accelsweep.errors import Unsupported

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")
MACHINE_ID = Path("/etc/machine-id")


class CpuDevice:
    """The host, on which every operation is complete when its call returns."""

    asynchronous = False

    def synchronise(self) -> None:
        """Return immediately."""

    def marks(self, clock: Clock) -> Marks:
        """Start a series of marks on the host's clock."""
        return ClockMarks(clock)


class CpuKind(DeviceKind):
    """The processor: a machine has a single model, counted in cores, and every run may use all cores.

    Because it is part of the host, it is included in every fingerprint, and its state is read along with the host's.
    """

    accelerator = "cpu"
    unit, units, site_units = "process", "processes", "CPU cores"
    uses_pinned_memory = False
    known_to_lightning = True
    profiler_activity_name = "CPU"

    def inventory(self, torch: str | None = None) -> tuple[Device, ...]:
        """Return the processor with the cores and the memory that this process may use."""
        del torch
        emulates = emulated_formats(cpu_flags(), os.environ)
        return (Device("cpu", cpu_model(), linux.usable_cores(), memory_bytes(), emulates),)

    def unsupported_precision(self, precision: str) -> str | None:
        """Return why a CPU cannot train in `precision`."""
        if precision == "16-mixed":
            return "16-mixed needs a GPU: torch's fp16 autocast does not train on a CPU (bf16-mixed does)"
        return super().unsupported_precision(precision)

    def unavailable_reason(self) -> None:
        """Return None, because there is always a processor."""

    def is_initialised(self) -> bool:
        """Return False, because there is no context that a fork would break."""
        return False

    def select_device(self, local_rank: int) -> torch.device:
        """Return the processor, shared by all ranks."""
        import torch

        del local_rank
        return torch.device("cpu")

    def timed_device(self, device: torch.device) -> CpuDevice:
        """Return the host."""
        del device
        return CpuDevice()

    def model_name(self, device: torch.device) -> str:
        """Return the processor's name."""
        del device
        return cpu_model()

    def telemetry_identity(self, device: torch.device) -> None:
        """Return None, because the processor's state is read along with the host's."""

    def allocated_bytes(self, device: torch.device) -> None:
        """Return None, because host memory is measured per process."""

    def memory(self, device: torch.device) -> DeviceMemory:
        """Return no values, only the reason why each of them is missing."""
        del device
        reason = "a CPU has no device allocator; see host_pss_bytes"
        return DeviceMemory(None, None, None, dict.fromkeys(("allocated", "reserved", "device"), reason))

    def empty_cache(self, device: torch.device) -> None:
        """Do nothing: there is no cache."""

    def reset_peak_memory(self, device: torch.device) -> None:
        """Do nothing: no allocator records peaks."""

    def cap_memory(
        self, device: torch.device, headroom: float, configured: int | None, host_memory: FreeMemory
    ) -> MemoryCap:
        """Cap the size of this process's data; `host_memory` already takes `configured` into account.

        The peak is the growth of the resident set. Raises Unsupported if a process's memory cannot be capped.
        """
        import torch

        del device, configured
        if sys.platform != "linux":
            raise Unsupported("task=largest_batch on a CPU bounds the memory of a process, which needs Linux")
        torch.ones(2**20).sum()  # starts torch's threads, so that their stacks do not count towards a batch's memory
        return_freed_blocks()
        before, cap = reset_peak_rss(), host_memory.without_headroom(headroom)
        limit_data_growth(cap)
        return MemoryCap(cap, host_memory.limit, lambda: max(0, process_bytes("VmHWM") - before))


KIND = CpuKind()


@functools.cache
def cpu_model() -> str:
    """Return the processor's name as reported by the system."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.processor()
    return model_in_cpuinfo(CPUINFO)


def model_in_cpuinfo(cpuinfo: Path) -> str:
    """Return the processor's name in Linux's `cpuinfo`; on ARM, it may be missing or replaced by the board's name."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for key in ("model name", "Model"):
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key) and ":" in line), None)
        if name:
            return name
    return platform.processor() or platform.machine()


FORMAT_FLAGS = {
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "fp16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
}
"""Number formats narrower than float32 -> Linux's flags for instructions that compute in them, on x86 and on ARM.

AVX-NE-CONVERT, which oneDNN uses for both formats on a few processors without AVX-512, has no such flag.
"""

_VECTOR_FLAGS = frozenset({"avx2", "avx512f", "asimd"})

_ISA_WITHOUT_BF16 = frozenset({"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"})

_ISA_WITHOUT = {"bf16": _ISA_WITHOUT_BF16, "fp16": _ISA_WITHOUT_BF16 | {"AVX512_CORE_BF16"}}
"""Number formats -> values of `ISA_LIMITS` with which oneDNN emulates them (oneDNN, "CPU Dispatcher Control")."""

ISA_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables that keep oneDNN from using newer instructions; the first one that is set counts."""


def cpu_flags(cpuinfo: Path = CPUINFO) -> tuple[str, ...] | None:
    """Return the flags in Linux's `cpuinfo` that decide how number formats are computed; None if it lists no flags."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return None
    found = next((line.split(":", 1)[1].split() for line in lines if re.match(r"(flags|Features)\s*:", line)), None)
    return None if found is None else tuple(sorted(_VECTOR_FLAGS.union(*FORMAT_FLAGS.values()).intersection(found)))


def emulated_formats(flags: Collection[str] | None, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the number formats that torch computes in float32, converting them before and after; empty if unknown.

    `flags` are those that `cpu_flags` returns, and `variables` are environment variables. According to oneDNN ("Data
    Types"), bf16 is then three to four times slower than float32.
    """
    if flags is None:
        return ()
    limit = next((variables[name].upper() for name in ISA_LIMITS if name in variables), "")
    return tuple(name for name, known in FORMAT_FLAGS.items() if known.isdisjoint(flags) or limit in _ISA_WITHOUT[name])


def number_format(precision: str) -> str:
    """Return the narrowest format that `precision` computes in: `bf16` for `bf16-mixed`, `fp16` for `16-true`."""
    width = precision.partition("-")[0]
    return width if width.startswith("bf") else f"fp{width}"


def _sysctl(name: str) -> str:
    """Return the value of a macOS sysctl; empty if it is not set."""
    command = ["/usr/sbin/sysctl", "-n", name]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def memory_bytes() -> int:
    """Return the memory in bytes that this process may use: the machine's, or the limit of its control groups."""
    machine, limit = host.memory_total(), linux.cgroup_memory_limit()
    return machine if limit is None else min(machine, limit)


def machine_identity() -> str | None:
    """Return 16 hexadecimal digits that identify this machine; None if the system defines no identifier.

    The system's own identifier is confidential (`man machine-id`), so only a keyed hash of it is published. In
    containers, it may be empty or shared by all containers from the same image.
    """
    try:
        identity = MACHINE_ID.read_text().strip() if sys.platform != "darwin" else _sysctl("kern.uuid")
    except OSError:
        return None
    return hmac.new(identity.encode(), b"accelsweep", "sha256").hexdigest()[:16] if identity else None


def host_facts() -> dict[str, Any]:
    """Return the facts about this host that do not change during a run. Memory is in bytes; unknown values are None."""
    return {
        "host": socket.gethostname(),
        "machine": machine_identity(),
        "cpu_model": cpu_model(),
        "cpu_flags": cpu_flags(),
        "cores_physical": host.physical_cores(),
        "cores_logical": os.cpu_count(),
        "cores_usable": linux.usable_cores(),
        "cgroup_cpu_quota": linux.cpu_quota(),
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
