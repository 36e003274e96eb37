"""The processor: its name, the cores that this process may use, its memory.

The name is part of every record's fingerprint: another text for the same processor measures all sweeps again.
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil

from accelsweep.core.sites.device import Device
from accelsweep.machine import cgroup
from accelsweep.machine.kind import DeviceKind

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


def allowed_cores() -> set[int]:
    """Return the numbers of the logical cores that this process may run on: its affinity, or all where there is none.

    Other processes on these cores take time from us. `usable_cores` returns how much of them we may use.
    """
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def usable_cores() -> int:
    """Return how many cores' worth of time this process may use: by affinity and by quota, rounded down, at least 1."""
    allowed, quota = len(allowed_cores()), cgroup.cpu_quota()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def memory_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or what its control groups grant of them."""
    machine, group = int(psutil.virtual_memory().total), cgroup.memory_limit()
    return machine if group is None else min(machine, group)
