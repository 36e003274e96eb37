"""NVIDIA's management library: the facts and the state of a GPU, without CUDA and without a context on the device.

https://docs.nvidia.com/deploy/nvml-api/ documents it. Every function gives a reason instead of a number where the
library, the driver or the device has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml


class NoNvml(Exception):
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
