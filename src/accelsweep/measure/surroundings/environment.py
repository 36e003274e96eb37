"""The state of the machine right before and right after a run, and the differences that are reasons to doubt it.

Each reading is a dictionary that JSON can hold. A value that cannot be read is null, and the GPU's part says why.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import psutil

from accelsweep.base.secrets import masked, names_a_secret
from accelsweep.engines.this_job import RECORDED_VARIABLES
from accelsweep.machine.cpu import allowed_cores
from accelsweep.machine.devices import heeded
from accelsweep.machine.host import host_facts
from accelsweep.machine.room import free_memory
from accelsweep.measure.surroundings.device_state import device_state


def environment(identities: tuple[str, ...], accelerator: str) -> dict[str, Any]:
    """Return the present state of the host and of the devices that their kind calls `identities`."""
    return {**host_state(), "devices": [device_state(identity, accelerator) for identity in identities]}


def host_state() -> dict[str, Any]:
    """Return the present state of the host alone."""
    swap = psutil.swap_memory()
    return {
        **host_facts(),
        "load_average_1min": psutil.getloadavg()[0],
        "memory_available_bytes": free_memory().bytes,
        "swap_used_bytes": swap.used,
        "swapped_in_bytes": swap.sin,
        "swapped_out_bytes": swap.sout,
        "governor": governor(),
        "cpu_mhz": _mhz(),
        "cpu_celsius": _celsius(),
        "variables": {
            name: masked(os.environ[name])
            for name in sorted(os.environ)
            if name.startswith(_TELLING) and not names_a_secret(name)
        },
    }


_TELLING = (
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_",
    "CUDNN_",
    "NCCL_",
    "GLOO_",
    "PYTORCH_",
    "TORCH_",
    "LD_PRELOAD",
    "PYTHONDEVMODE",
    "PYTHONMALLOC",
    "PYTHONTRACEMALLOC",
    *RECORDED_VARIABLES,
    *heeded(),
)
"""Beginnings of the environment variables that can change a measurement; others may hold secrets and are not kept.

Nor is one of these whose name tells of a secret, such as TORCH_HUB_TOKEN."""


def governor(cpus: Path = Path("/sys/devices/system/cpu")) -> str | None:
    """Return the frequency governor of the cores that we may use (`performance`, ...), or None where there is none.

    Several are joined by commas. `cpus` is the folder of cores.
    """
    names = set()
    for core in allowed_cores():
        with contextlib.suppress(OSError):
            names.add((cpus / f"cpu{core}" / "cpufreq" / "scaling_governor").read_text().strip())
    return ", ".join(sorted(names)) or None


def _mhz() -> float | None:
    try:
        frequency = psutil.cpu_freq()
    except (AttributeError, OSError, NotImplementedError):
        return None
    return round(frequency.current, 1) if frequency is not None else None


def _celsius() -> float | None:
    try:
        sensors = psutil.sensors_temperatures()
    except (AttributeError, OSError):
        return None
    values = [reading.current for name in ("coretemp", "k10temp", "cpu_thermal") for reading in sensors.get(name, [])]
    return max(values) if values else None
