"""NVIDIA's GPUs that this process may use, found by NVML, which makes no context on a device.

CUDA_VISIBLE_DEVICES is read as CUDA reads it. Of AMD's devices, `rocm.py` beside this file reads it as HIP does:
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
A board in MIG mode is used by its slices. A process sees one slice, and no whole board beside it:
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html#device-enumeration
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pynvml

from accelsweep.devices.backend import DeviceKind, Gpu, NoReading, QueueKind, foreign
from accelsweep.devices.kinds import Device

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


# NVIDIA's management library: the facts and the state of a GPU, without CUDA and without a context on the device.


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


# The state and the energy of NVIDIA's devices: clocks, temperature, power, throttle reasons, other processes.

THROTTLES = {
    "SwPowerCap": 0x4,
    "HwSlowdown": 0x8,
    "SwThermalSlowdown": 0x20,
    "HwThermalSlowdown": 0x40,
    "HwPowerBrakeSlowdown": 0x80,
}
"""NVML's clock event bits that mean "slower than it could": nvmlClocksEventReasons in nvml.h."""

VIOLATIONS = {"power cap": 0, "heat": 1, "board limit": 3, "reliability": 5}
"""NVML's counters of the time that a device was held back, by reason: nvmlPerfPolicyType_t in nvml.h.

They run all the time, so that two readings cover everything between them.
"""


class NvmlTelemetry:
    """NVML as telemetry. An identity is a UUID as CUDA has it."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state; raise NoNvml where NVML has none."""
        with nvml() as library:
            return _state(library, handle_of(identity))

    def joules(self, identity: str) -> float:
        """Return NVML's total-energy counter, which is in millijoules; raise NoNvml where there is none."""
        with nvml() as library:
            return float(ask(library.nvmlDeviceGetTotalEnergyConsumption, handle_of(identity))) / 1e3


def _state(library: Any, handle: Any) -> dict[str, Any]:
    memory = _or_none(library.nvmlDeviceGetMemoryInfo, handle)
    bits = _or_none(library.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    milliwatts = _or_none(library.nvmlDeviceGetPowerUsage, handle)
    limit = _or_none(library.nvmlDeviceGetEnforcedPowerLimit, handle)
    name = _or_none(library.nvmlDeviceGetName, handle)
    return {
        "name": None if name is None else text(name),
        "sm_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
        "sm_mhz_max": _or_none(library.nvmlDeviceGetMaxClockInfo, handle, library.NVML_CLOCK_SM),
        "memory_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_MEM),
        "celsius": _or_none(library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU),
        "watts": None if milliwatts is None else milliwatts / 1000.0,
        "watts_limit": None if limit is None else limit / 1000.0,
        "memory_used_bytes": None if memory is None else memory.used,
        "memory_total_bytes": None if memory is None else memory.total,
        "throttles": None if bits is None else [word for word, bit in THROTTLES.items() if bits & bit],
        "held_back": {word: _held_back(library, handle, policy) for word, policy in VIOLATIONS.items()},
        "foreign_processes": foreign(_processes(library, handle)),
    }


def _held_back(library: Any, handle: Any, policy: int) -> list[float] | None:
    """Return the seconds that a device was held back so far, and the counter's own clock in seconds; None if unknown.

    nvml.h: `violationTime` is in nanoseconds, `referenceTime` in microseconds.
    """
    counter = _or_none(library.nvmlDeviceGetViolationStatus, handle, policy)
    return None if counter is None else [counter.violationTime / 1e9, counter.referenceTime / 1e6]


def _or_none(question: Any, *arguments: Any) -> Any:
    try:
        return ask(question, *arguments)
    except NoNvml:
        return None


def _processes(library: Any, handle: Any) -> list[int] | None:
    running = _or_none(library.nvmlDeviceGetComputeRunningProcesses, handle)
    return None if running is None else [process.pid for process in running]


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


# NVIDIA's devices and, with a ROCm build of torch, AMD's: torch calls both `cuda`.


class TorchCuda(QueueKind):
    """CUDA devices. On AMD's the collectives are RCCL's, which goes by the same name."""

    collectives, tf32, known_to_lightning = "nccl", True, True

    @property
    def profiler_activity(self) -> ProfilerActivity:
        """What the profiler records of it."""
        from torch.profiler import ProfilerActivity

        return ProfilerActivity.CUDA

    def __init__(self) -> None:
        """Take torch.cuda."""
        super().__init__("cuda")

    def absent(self) -> str | None:
        """Return why torch finds no device: its build, or something that the driver's own tool may tell."""
        import torch

        if torch.cuda.is_available():
            return None
        built = torch.version.cuda
        if built is None:
            return "finds no CUDA device here: it was built without CUDA"
        return f"finds no CUDA device here: it was built for CUDA {built}; nvidia-smi may say more"
