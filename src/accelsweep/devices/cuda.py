"""NVIDIA GPUs, detected through NVML, which creates no context on a device.

CUDA_VISIBLE_DEVICES is interpreted as in CUDA (AMD GPUs are in `rocm.py`):
https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#cuda-environment-variables
A board in MIG mode is used through its slices. A process that uses MIG sees a single slice and no whole boards:
https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html#device-enumeration
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from accelsweep.devices.device_kind import (
    Device,
    DeviceKind,
    Gpu,
    TelemetryUnavailable,
    foreign_processes,
    torch_is_built_for_rocm,
)

if TYPE_CHECKING:
    import torch

CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"

THROTTLES = {
    "SwPowerCap": 0x4,
    "HwSlowdown": 0x8,
    "SwThermalSlowdown": 0x20,
    "HwThermalSlowdown": 0x40,
    "HwPowerBrakeSlowdown": 0x80,
}
"""NVML's clock event bits which indicate that a device is throttled: nvmlClocksEventReasons in nvml.h."""

VIOLATIONS = {"power cap": 0, "heat": 1, "board limit": 3, "reliability": 5}
"""NVML's counters of throttled time, keyed by reason: nvmlPerfPolicyType_t in nvml.h.

They are cumulative, so the difference between two readings covers everything in between.
"""


class NvmlUnavailable(TelemetryUnavailable):
    """NVML cannot answer a query; the exception's message is the reason to report."""


@contextmanager
def nvml() -> Iterator[Any]:
    """Yield pynvml, initialised. Raises NvmlUnavailable if the driver or pynvml is missing."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable(f"NVML: the package nvidia-ml-py cannot be imported here ({error})") from None
    _ask(pynvml.nvmlInit)
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _ask(question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of an NVML call; if it fails, raise NvmlUnavailable with NVML's error message."""
    import pynvml

    try:
        return question(*arguments)
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from None


def _or_none(question: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return _ask(question, *arguments)
    except NvmlUnavailable:
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # older bindings return bytes


def handle_of(library: Any, uuid: str) -> Any:
    """Return NVML's handle for the device with the CUDA `uuid` (device numbers differ between CUDA and NVML).

    torch strips the prefix, which distinguishes boards (`GPU-`) from slices (`MIG-`). Raises NvmlUnavailable.
    """
    if uuid.startswith(("GPU-", "MIG-")):
        return _ask(library.nvmlDeviceGetHandleByUUID, uuid)
    try:
        return _ask(library.nvmlDeviceGetHandleByUUID, f"GPU-{uuid}")
    except NvmlUnavailable:
        return _ask(library.nvmlDeviceGetHandleByUUID, f"MIG-{uuid}")


class NvmlTelemetry:
    """Telemetry from NVML. A device is identified by its CUDA UUID."""

    def state(self, identity: str) -> dict[str, Any]:
        """Return the device's state. Raises NvmlUnavailable."""
        with nvml() as library:
            return _state(library, handle_of(library, identity))

    def readings(self, identity: str) -> dict[str, Any]:
        """Return what changes while the device runs. Raises NvmlUnavailable."""
        with nvml() as library:
            return _readings(library, handle_of(library, identity))

    def joules(self, identity: str) -> float:
        """Return the energy from NVML's total-energy counter, which counts millijoules. Raises NvmlUnavailable."""
        with nvml() as library:
            return float(_ask(library.nvmlDeviceGetTotalEnergyConsumption, handle_of(library, identity))) / 1e3


def _state(library: Any, handle: Any) -> dict[str, Any]:
    memory, name = _or_none(library.nvmlDeviceGetMemoryInfo, handle), _or_none(library.nvmlDeviceGetName, handle)
    readings = _readings(library, handle)
    processes = readings.pop("processes")
    return {
        "name": None if name is None else _text(name),
        "sm_mhz_max": _or_none(library.nvmlDeviceGetMaxClockInfo, handle, library.NVML_CLOCK_SM),
        "memory_total_bytes": None if memory is None else memory.total,
        **readings,
        "foreign_processes": foreign_processes(processes),
    }


def _readings(library: Any, handle: Any) -> dict[str, Any]:
    memory = _or_none(library.nvmlDeviceGetMemoryInfo, handle)
    throttles = _or_none(library.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
    utilisation = _or_none(library.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = _or_none(library.nvmlDeviceGetPowerUsage, handle)
    milliwatts_limit = _or_none(library.nvmlDeviceGetEnforcedPowerLimit, handle)
    processes = _or_none(library.nvmlDeviceGetComputeRunningProcesses, handle)
    return {
        "sm_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_SM),
        "memory_mhz": _or_none(library.nvmlDeviceGetClockInfo, handle, library.NVML_CLOCK_MEM),
        "utilisation": None if utilisation is None else utilisation.gpu / 100.0,
        "celsius": _or_none(library.nvmlDeviceGetTemperature, handle, library.NVML_TEMPERATURE_GPU),
        "watts": None if milliwatts is None else milliwatts / 1000.0,
        "watts_limit": None if milliwatts_limit is None else milliwatts_limit / 1000.0,
        "memory_used_bytes": None if memory is None else memory.used,
        "throttles": None if throttles is None else [reason for reason, bit in THROTTLES.items() if throttles & bit],
        "held_back": {reason: _violation(library, handle, policy) for reason, policy in VIOLATIONS.items()},
        "processes": None if processes is None else [process.pid for process in processes],
    }


def _violation(library: Any, handle: Any, policy: int) -> list[float] | None:
    """Return the seconds for which the device was throttled, and the counter's own clock in seconds; None if unknown.

    According to nvml.h, `violationTime` is in nanoseconds and `referenceTime` is in microseconds.
    """
    counter = _or_none(library.nvmlDeviceGetViolationStatus, handle, policy)
    return None if counter is None else [counter.violationTime / 1e9, counter.referenceTime / 1e6]


@dataclass(frozen=True)
class Board:
    """A board, in NVML's order. `slices` is None if the board is not in MIG mode and is used as a whole."""

    whole: Gpu
    slices: tuple[Gpu, ...] | None = None

    @property
    def first(self) -> Gpu | None:
        """The device that the board's index or UUID selects; None for a board in MIG mode without slices."""
        return self.whole if self.slices is None else next(iter(self.slices), None)


class CudaKind(DeviceKind):
    """NVIDIA GPUs. Each is leased by name, and only leased GPUs are visible to a run."""

    accelerator = "cuda"
    aliases = ("gpu", "rocm", "hip")
    unit, units, site_units = "GPU", "GPUs", "CUDA devices"
    own_memory = True
    scheduled_as_gpu = True
    auto_priority = 1
    environment_prefixes = (CUDA_VARIABLE,)
    telemetry = NvmlTelemetry()
    distributed_backend = "nccl"
    supports_tf32 = True
    known_to_lightning = True
    profiler_activity_name = "CUDA"

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the visible devices, each with its name in CUDA_VISIBLE_DEVICES and its UUID."""
        return visible_gpus(os.environ.get(CUDA_VARIABLE), boards())

    def inventory(self, torch: str | None = None) -> tuple[Device, ...]:
        """Return the visible devices grouped by model and memory; empty if torch is a CPU-only build."""
        is_cpu_only = cpu_only_torch() if torch is None else torch.endswith("+cpu")
        return () if is_cpu_only else super().inventory()

    def visibility_variables(self, names: Sequence[str]) -> dict[str, str]:
        """Return the environment variable that restricts a process to these devices of this kind."""
        return {CUDA_VARIABLE: ",".join(names)}

    def fingerprint(self) -> dict[str, str]:
        """Return the machine's board models as `device`, and the `driver`; empty if there are no boards."""
        models = sorted({board.whole.model for board in boards()})
        try:
            with nvml() as library:
                driver = _text(_ask(library.nvmlSystemGetDriverVersion))
        except NvmlUnavailable:
            return {}
        return {"device": ", ".join(models), "driver": driver} if models else {}

    def unsupported_precision(self, precision: str) -> None:
        """Return None, because supported formats depend on the device's model and are only known at run time."""

    def unavailable_reason(self) -> str | None:
        """Return why torch detects no device: its build, or a problem that nvidia-smi may identify."""
        import torch

        if torch.cuda.is_available():
            return None
        if torch.version.cuda is None:
            return "finds no CUDA device here: it was built without CUDA"
        return f"finds no CUDA device here: it was built for CUDA {torch.version.cuda}; nvidia-smi may show why"

    @contextmanager
    def telemetry_session(self) -> Iterator[None]:
        """Keep NVML initialised, if it can be."""
        with ExitStack() as stack:
            with suppress(NvmlUnavailable):
                stack.enter_context(nvml())
            yield

    def telemetry_identity(self, device: torch.device) -> str | None:
        """Return the device's UUID, from NVML if torch is too old to report it."""
        if hasattr(self.module.get_device_properties(device), "uuid"):
            return super().telemetry_identity(device)
        gpus = self.gpus()
        return gpus[device.index].identity if device.index < len(gpus) else None


KIND = None if torch_is_built_for_rocm() else CudaKind()


def cpu_only_torch() -> bool:
    """Return whether the installed torch is a build without CUDA, based on its version's tag."""
    try:
        return metadata.version("torch").endswith("+cpu")
    except metadata.PackageNotFoundError:
        return False


def visible_gpus(variable: str | None, machine: Sequence[Board]) -> tuple[Gpu, ...]:
    """Return the devices that CUDA_VISIBLE_DEVICES makes visible. As in CUDA, the first unknown name ends the list.

    `variable` is its value, or None if unset. Names are indices or UUID prefixes of boards and slices.
    """
    if variable is None:
        gpus = [board.first for board in machine if board.first is not None]
    else:
        gpus = []
        for name in (part.strip() for part in variable.split(",")):
            gpu = _named(name, machine)
            if gpu is None or gpu.identity in {known.identity for known in gpus}:
                break
            gpus.append(gpu)
    whole = {board.whole.identity for board in machine}
    slices = [gpu for gpu in gpus if gpu.identity not in whole]
    return tuple(slices[:1] or gpus)


def _named(name: str, machine: Sequence[Board]) -> Gpu | None:
    """Return the device matching `name`, renamed to `name` if it is a whole board; None unless exactly one matches."""
    if name.isdigit():
        matches = [board.first for board in machine[int(name) : int(name) + 1]]
    elif name.startswith("MIG-"):
        matches = [gpu for board in machine for gpu in board.slices or () if gpu.identity.startswith(name)]
    else:
        matches = [board.first for board in machine if name and board.whole.identity.startswith(name)]
    if len(matches) != 1 or matches[0] is None:
        return None
    gpu = matches[0]
    return gpu if gpu.identity.startswith("MIG-") else replace(gpu, name=name)


def boards() -> tuple[Board, ...]:
    """Return the machine's boards in NVML's order, regardless of CUDA_VISIBLE_DEVICES; empty without a driver."""
    try:
        with nvml() as library:
            return tuple(_board(library, index) for index in range(_ask(library.nvmlDeviceGetCount)))
    except NvmlUnavailable:
        return ()


def _board(library: Any, index: int) -> Board:
    handle = _ask(library.nvmlDeviceGetHandleByIndex, index)
    return Board(_gpu(library, handle, str(index)), _slices(library, handle))


def _gpu(library: Any, handle: Any, name: str | None = None) -> Gpu:
    """Return a board, or a slice named by its UUID."""
    uuid, model = _text(_ask(library.nvmlDeviceGetUUID, handle)), _text(_ask(library.nvmlDeviceGetName, handle))
    memory = _or_none(library.nvmlDeviceGetMemoryInfo, handle)  # None for boards that share the host's memory
    return Gpu(name or uuid, uuid, model, None if memory is None else int(memory.total))


def _slices(library: Any, board: Any) -> tuple[Gpu, ...] | None:
    try:
        mode, _ = _ask(library.nvmlDeviceGetMigMode, board)
        count = _ask(library.nvmlDeviceGetMaxMigDeviceCount, board) if mode else 0
    except NvmlUnavailable:
        return None  # a board that does not support MIG
    if not mode:
        return None
    handles = (_or_none(library.nvmlDeviceGetMigDeviceHandleByIndex, board, index) for index in range(count))
    return tuple(_gpu(library, handle) for handle in handles if handle is not None)
