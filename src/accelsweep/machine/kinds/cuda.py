"""NVIDIA's GPUs that this process may use, found by NVML, which makes no context on a device.

CUDA_VISIBLE_DEVICES is read as CUDA reads it. Of AMD's devices, `rocm.py` beside this file reads it as HIP does:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
A board in MIG mode is used by its slices. A process sees one slice, and no whole board beside it:
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html#device-enumeration
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from accelsweep.core.sites.device import Device
from accelsweep.machine.drivers.nvml import NoNvml, ask, nvml, text
from accelsweep.machine.drivers.nvml_telemetry import NvmlTelemetry
from accelsweep.machine.kind import DeviceKind, Gpu

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Board:
    """A board as NVML shows it; `slices` is None where it is not in MIG mode. Then it is a device as a whole."""

    whole: Gpu
    slices: tuple[Gpu, ...] | None = None

    @property
    def first(self) -> Gpu | None:
        """The device that the board's index and UUID stand for; None for a board in MIG mode without a slice."""
        return self.whole if self.slices is None else next(iter(self.slices), None)


class CudaKind(DeviceKind):
    """CUDA devices as a kind of device: each is leased by its name, and a run sees only its own."""

    accelerator, telemetry, heeds = "cuda", NvmlTelemetry(), (CUDA_VARIABLE,)

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the visible devices: the name for CUDA_VISIBLE_DEVICES, and the UUID."""
        return visible_gpus()

    def inventory(self) -> tuple[Device, ...]:
        """Return the visible devices, grouped by model and memory; none where torch is a build for CPUs alone."""
        return () if cpu_only_torch() else super().inventory()

    def variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the variable that shows a process these devices and no other of this kind."""
        return {CUDA_VARIABLE: ",".join(names)}

    def hardware(self) -> dict[str, str]:
        """Return the models of all the machine's boards as `device`, and the `driver`; empty where there are none."""
        models = sorted({board.whole.model for board in boards()})
        try:
            with nvml() as library:
                driver = text(ask(library.nvmlSystemGetDriverVersion))
        except NoNvml:
            return {}
        return {"device": ", ".join(models), "driver": driver} if models else {}

    def refuses(self, precision: str) -> str | None:
        """Return None: NVIDIA's devices differ, and which of them has which format is seen where the run is."""
        del precision
        return None


def visible_gpus() -> tuple[Gpu, ...]:
    """Return the devices of this machine that CUDA shows to this process."""
    return visible(os.environ.get(CUDA_VARIABLE), boards())


def cpu_only_torch() -> bool:
    """Return whether the installed torch is a build that cannot use CUDA, judged by its version's tag."""
    try:
        return metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False


def visible(variable: str | None, machine: Sequence[Board]) -> tuple[Gpu, ...]:
    """Return a machine's boards that CUDA_VISIBLE_DEVICES leaves. As in CUDA, the first unknown name ends the list.

    `variable` is its value or None if it is not set. Names may be indices, or beginnings of UUIDs of boards and slices.
    """
    if variable is None:
        found = [board.first for board in machine if board.first is not None]
    else:
        found = []
        for name in (part.strip() for part in variable.split(",")):
            gpu = _named(name, machine)
            if gpu is None or gpu.identity in {known.identity for known in found}:
                break
            found.append(gpu)
    whole = {board.whole.identity for board in machine}
    slices = [gpu for gpu in found if gpu.identity not in whole]
    return tuple(slices[:1] or found)


def _named(name: str, machine: Sequence[Board]) -> Gpu | None:
    """Return the one device with this `name`, under that name if it is a whole board; None if there is none."""
    if name.isdigit():
        fitting = [board.first for board in machine[int(name) : int(name) + 1]]
    elif name.startswith("MIG-"):
        fitting = [gpu for board in machine for gpu in board.slices or () if gpu.identity.startswith(name)]
    else:
        fitting = [board.first for board in machine if name and board.whole.identity.startswith(name)]
    if len(fitting) != 1 or fitting[0] is None:
        return None
    gpu = fitting[0]
    return gpu if gpu.identity.startswith("MIG-") else Gpu(name, gpu.identity, gpu.model, gpu.memory_bytes)


def boards() -> tuple[Board, ...]:
    """Return the machine's boards in NVML's order, whatever CUDA_VISIBLE_DEVICES says; none without a driver."""
    try:
        with nvml() as library:
            return tuple(_board(library, index) for index in range(ask(library.nvmlDeviceGetCount)))
    except NoNvml:
        return ()


def _board(library: Any, index: int) -> Board:
    handle = ask(library.nvmlDeviceGetHandleByIndex, index)
    uuid, model = text(ask(library.nvmlDeviceGetUUID, handle)), text(ask(library.nvmlDeviceGetName, handle))
    return Board(Gpu(str(index), uuid, model, _memory(library, handle)), _slices(library, handle))


def _slices(library: Any, board: Any) -> tuple[Gpu, ...] | None:
    try:
        mode, _ = ask(library.nvmlDeviceGetMigMode, board)
        places = ask(library.nvmlDeviceGetMaxMigDeviceCount, board) if mode else 0
    except NoNvml:
        return None  # a board that cannot be sliced
    found = [_slice(library, board, place) for place in range(places)]
    return tuple(gpu for gpu in found if gpu is not None) if mode else None


def _slice(library: Any, board: Any, place: int) -> Gpu | None:
    try:
        handle = ask(library.nvmlDeviceGetMigDeviceHandleByIndex, board, place)
    except NoNvml:
        return None  # there is no slice in this place
    uuid, model = text(ask(library.nvmlDeviceGetUUID, handle)), text(ask(library.nvmlDeviceGetName, handle))
    return Gpu(uuid, uuid, model, _memory(library, handle))


def _memory(library: Any, handle: Any) -> int | None:
    try:
        return int(ask(library.nvmlDeviceGetMemoryInfo, handle).total)
    except NoNvml:
        return None  # boards that share the host's memory have none of their own
