"""What stays the same on this machine while a run lasts, as every record states it."""

from __future__ import annotations

import platform
import socket
from typing import Any

import psutil

from accelsweep.machine.cgroup import cpu_quota
from accelsweep.machine.cpu import cpu_model, memory_bytes, usable_cores


def host_facts() -> dict[str, Any]:
    """Return the host's name, processor, cores, memory in bytes, system and Python; null for what it does not tell."""
    return {
        "host": socket.gethostname(),
        "cpu_model": cpu_model(),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "cores_usable": usable_cores(),
        "cgroup_cpu_quota": cpu_quota(),
        "memory_bytes": memory_bytes(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
