"""NUMA nodes of Linux: which cores belong to a node, which node a GPU is attached to, and binding a process to a node.

The files are described in the kernel's documentation, Documentation/ABI/stable/sysfs-devices-node and
Documentation/ABI/testing/sysfs-bus-pci, the system call in `man 2 set_mempolicy`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path

from accelsweep.devices.linux import allowed_cores
from accelsweep.errors import Unsupported

NODES = Path("/sys/devices/system/node")

PCI_DEVICES = Path("/sys/bus/pci/devices")

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
"""A folder for each NVIDIA GPU, named by its PCI address; the file `information` contains the GPU's UUID."""

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""The number of the system call for each architecture."""

_MPOL_BIND = 2


def nodes() -> dict[int, set[int]]:
    """Return the cores of each NUMA node that has cores which this process may use."""
    found = {}
    for folder in NODES.glob("node[0-9]*"):
        cores = _cores((folder / "cpulist").read_text()) & allowed_cores()
        if cores:
            found[int(folder.name.removeprefix("node"))] = cores
    return dict(sorted(found.items()))


def _cores(listed: str) -> set[int]:
    """Return the numbers in a list such as `0-3,8`."""
    ranges = [part.partition("-") for part in listed.strip().split(",") if part]
    return {core for first, _, last in ranges for core in range(int(first), int(last or first) + 1)}


def node_of_gpu(identity: str) -> int | None:
    """Return the node that a GPU is attached to, given its UUID or PCI address; None if the system does not say."""
    try:
        node = int((PCI_DEVICES / _pci_address(identity).lower() / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _pci_address(identity: str) -> str:
    for folder in NVIDIA_GPUS.glob("*"):
        if re.search(rf"{re.escape(identity)}\b", (folder / "information").read_text()):
            return folder.name
    return identity


def bind(node: int) -> None:
    """Restrict this process to the cores and the memory of a node.

    Raises Unsupported if the node does not exist, or the system does not allow that.
    """
    found = nodes()
    if node not in found:
        listed = ", ".join(map(str, found)) or "none"
        raise Unsupported(f"numa={node}: the NUMA nodes with cores for this process are: {listed}")
    os.sched_setaffinity(0, found[node])
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise Unsupported(f"numa: binding memory is not implemented for {platform.machine()}")
    mask = ctypes.c_ulong(1 << node)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _MPOL_BIND, ctypes.byref(mask), ctypes.sizeof(mask) * 8 + 1) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Unsupported(f"numa={node}: memory cannot be bound to the node ({reason}), for example in a container")
