"""What this machine is: its processor, its cores that we may use, its system. Read without torch and without CUDA."""

from __future__ import annotations

import functools
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil


@functools.cache
def cpu_model() -> str:
    """Return the processor's name as the system shows it."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return (
            subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or platform.processor()
        )
    info = first_line("/proc/cpuinfo", "model name") or first_line("/proc/cpuinfo", "Model")
    return info or platform.processor() or platform.machine()


def first_line(path: str, key: str) -> str | None:
    """Return what stands after the colon of the first line of `path` that begins with `key`, or None."""
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key) and ":" in line), None)


def usable_cores() -> int:
    """Return how many logical cores this process may run on (its affinity; all of them where there is none)."""
    return len(usable_core_numbers())


def usable_core_numbers() -> set[int]:
    """Return the numbers of the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cpu_quota() -> float | None:
    """Return the cgroup's CPU limit in cores, or None where there is none or it cannot be read."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def machine() -> dict[str, Any]:
    """Return what does not change while a run lasts."""
    return {
        "host": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_usable": usable_cores(),
        "cgroup_cpu_quota": cpu_quota(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
