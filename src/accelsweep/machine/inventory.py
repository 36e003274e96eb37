"""What this machine has: processors, memory and GPUs, found without torch and without touching a GPU's memory.

Asked only for `site.probe: true` (the site `local`); every other site declares its inventory. Limits that the process
stands under (CPU affinity, a container's CPU quota, CUDA_VISIBLE_DEVICES) are part of what the machine has to offer.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from accelsweep.core.plans import Device


@dataclass(frozen=True)
class Processor:
    """The CPU: cores of the whole machine, `usable` logical cores for this process, memory in bytes."""

    model: str
    physical: int | None
    logical: int
    usable: int
    memory_bytes: int


def probe() -> tuple[Device, ...]:
    """Return the devices of this machine that this process may use: the CPU first, then GPUs."""
    cpu = processor()
    own = Device(accelerator="cpu", model=cpu.model, count=cpu.usable, memory_bytes=cpu.memory_bytes)
    return (own, *nvidia_devices(), *apple_devices(cpu))


def processor() -> Processor:
    """Return what the CPU of this machine is and how much of it this process may use."""
    logical = psutil.cpu_count(logical=True) or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    quota = cgroup_cpus(Path("/sys/fs/cgroup"))
    return Processor(
        model=_cpu_model(Path("/proc/cpuinfo")),
        physical=psutil.cpu_count(logical=False),
        logical=logical,
        usable=max(1, min(allowed, int(quota) if quota else allowed)),
        memory_bytes=psutil.virtual_memory().total,
    )


def cgroup_cpus(root: Path) -> float | None:
    """Return the CPU quota of this process's control group in cores (version 2, then 1), or None if there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (root / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    return int(quota) / int(period) if quota.isdigit() and int(period) > 0 else None


def _cpu_model(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.lower().startswith(("model name", "cpu model"))]
    return next(filter(None, named), platform.processor() or platform.machine() or "unknown CPU")


def nvidia_devices() -> tuple[Device, ...]:
    """Return this process's NVIDIA GPUs, grouped by model; none without a driver or with a CPU build of torch."""
    if cpu_only_torch():
        return ()
    gpus = _nvml_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    kept = [gpus[index] for index in visible_indices(visible, [gpu.uuid for gpu in gpus])]
    models = dict.fromkeys((gpu.model, gpu.memory_bytes) for gpu in kept)
    return tuple(
        Device(
            accelerator="cuda",
            model=model,
            count=sum((gpu.model, gpu.memory_bytes) == (model, memory) for gpu in kept),
            memory_bytes=memory,
        )
        for model, memory in models
    )


def cpu_only_torch() -> bool:
    """Return whether the installed torch is a build that cannot use CUDA, judged by its version's tag."""
    try:
        return metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False


@dataclass(frozen=True)
class _Gpu:
    uuid: str
    model: str
    memory_bytes: int | None


def _nvml_gpus() -> list[_Gpu]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_Gpu(pynvml.nvmlDeviceGetUUID(gpu), pynvml.nvmlDeviceGetName(gpu), _memory(gpu)) for gpu in handles]
    finally:
        pynvml.nvmlShutdown()


def _memory(gpu: Any) -> int | None:
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(gpu).total)
    except pynvml.NVMLError:
        return None  # boards that share the host's memory have none of their own to tell


def visible_indices(variable: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the device indices that CUDA_VISIBLE_DEVICES leaves. As in CUDA, the first unknown name ends the list.

    `variable` is its value or None if it is not set; `uuids` are the machine's devices. Names may be indices or
    beginnings of UUIDs. A slice of a device (`MIG-...`) is not found here and ends the list as well.
    """
    if variable is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for name in (part.strip() for part in variable.split(",")):
        if name.isdigit():
            fitting = [int(name)] if int(name) < len(uuids) else []
        else:
            fitting = [index for index, uuid in enumerate(uuids) if name and uuid.startswith(name)]
        if len(fitting) != 1 or fitting[0] in found:
            break
        found += fitting
    return found


def apple_devices(cpu: Processor, system: str | None = None, machine: str | None = None) -> tuple[Device, ...]:
    """Return the GPU of an Apple-silicon Mac, which shares the CPU's name and memory, or nothing elsewhere."""
    if (system or platform.system(), machine or platform.machine()) != ("Darwin", "arm64"):
        return ()
    return (Device(accelerator="mps", model=cpu.model, count=1, memory_bytes=cpu.memory_bytes),)
