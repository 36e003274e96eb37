"""The facts of this machine that stay the same while a run lasts, as every record states them."""

from __future__ import annotations

import hmac
import platform
import socket
import sys
from pathlib import Path
from typing import Any

import psutil

from accelsweep.machine.cgroup import cpu_quota
from accelsweep.machine.cpu import cpu_model, memory_bytes, sysctl, usable_cores

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
