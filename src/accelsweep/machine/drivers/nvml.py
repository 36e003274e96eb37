"""NVIDIA's management library: the facts and the state of a GPU, without CUDA and without a context on the device.

https://docs.nvidia.com/deploy/nvml-api/ documents it. Every function gives a reason instead of a number where the
library, the driver or the device has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from accelsweep.machine.drivers.telemetry import NoReading


class NoNvml(NoReading):
    """NVML has no answer; the message is the reason to show."""


@contextmanager
def nvml() -> Iterator[Any]:
    """Give pynvml, initialised; raise NoNvml where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML: {error}") from None
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return NVML's answer to `question(*arguments)`; raise NoNvml with the library's own words where it has none."""
    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML: {error}") from None


def text(value: str | bytes) -> str:
    """Return NVML's text as str: older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else value


def handle_of(uuid: str) -> Any:
    """Return NVML's handle of the device that CUDA calls `uuid` (device numbers differ between CUDA and NVML).

    torch gives UUIDs without the word before them, which tells boards (`GPU-`) from slices (`MIG-`). Raises NoNvml.
    """
    if uuid.startswith(("GPU-", "MIG-")):
        return ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    try:
        return ask(pynvml.nvmlDeviceGetHandleByUUID, f"GPU-{uuid}")
    except NoNvml:
        return ask(pynvml.nvmlDeviceGetHandleByUUID, f"MIG-{uuid}")
