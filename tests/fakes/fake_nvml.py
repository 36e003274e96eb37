"""NVML for a machine that has no GPU: boards and slices answer as nvml.h documents, errors included.

Functions that are not written here are missing, so that a test which needs one fails by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import pynvml


@dataclass(frozen=True)
class FakeGpu:
    """A board or a slice. `slices` None is a board without MIG; () and places that hold None are empty."""

    uuid: str
    model: str = "Fake H100"
    memory_bytes: int | None = 2**30
    slices: tuple[FakeGpu | None, ...] | None = None
    mig: bool = True


class FakeNvml:
    """The library, as `accelsweep.devices.cuda.nvml` gives it; handles are the fake devices themselves."""

    def __init__(self, *boards: FakeGpu, driver: str = "570.1") -> None:
        self.boards, self.driver = boards, driver

    @contextmanager
    def opened(self) -> Iterator[FakeNvml]:
        """Stand in for `nvml()`."""
        yield self

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - these are NVML's own names
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.boards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        every = [gpu for board in self.boards for gpu in (board, *(board.slices or ())) if gpu is not None]
        for gpu in every:
            if gpu.uuid == uuid:
                return gpu
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> bytes:  # noqa: N802 - older bindings give bytes
        return gpu.uuid.encode()

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.model

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        if gpu.memory_bytes is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(total=gpu.memory_bytes)

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> tuple[int, int]:  # noqa: N802 - (now, after the next reset)
        if gpu.slices is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int(gpu.mig), 1

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return len(gpu.slices or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, place: int) -> FakeGpu:  # noqa: N802
        found = (gpu.slices or ())[place]
        if found is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return found

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return self.driver.encode()
