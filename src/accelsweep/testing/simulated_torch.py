"""Every operation on the simulated device: its shape at once from the meta device, its numbers later from the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from accelsweep.testing import simulated_device as driver
from accelsweep.testing.simulated_device import Spec
from accelsweep.testing.simulator import Allocation, Buffer, Slot, buffer, current, handle, on_device, used

aten = torch.ops.aten

AS_RESHAPE = {aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
"""For torch every tensor here is contiguous, so it asks for views where the numbers may have to be copied."""

IN_MEMORY_ORDER = ("_fused", "linalg_vector_norm")
"""Beginnings of operations on gradients whose result depends on the order in memory.

torch copies a gradient whose strides are not its parameter's. Here it cannot see them.
"""


def kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operation: allocate its results, queue its work, and return before that is done."""
    if op in AS_RESHAPE:
        op, args = aten.reshape.default, args[:2]
    flat, spec = pytree.tree_flatten((args, kwargs))
    try:
        results = _call(op, pytree.tree_unflatten([_as_meta(one) for one in flat], spec))
    except (NotImplementedError, RuntimeError):
        return _at_once(op, flat, spec)  # the shape depends on the numbers, or the call is wrong
    outputs, shape = pytree.tree_flatten(results)
    made, slots = _made(
        outputs, [buffer(one) for one in flat if on_device(one)], [one for one in flat if on_device(one)]
    )
    sources = [_source(one) for one in flat]

    def work() -> None:
        with torch.no_grad():
            found = pytree.tree_leaves(_call(op, pytree.tree_unflatten([_laid_out(op, one) for one in sources], spec)))
        for slot, numbers in zip(slots, found, strict=True):
            if slot is not None:
                slot.numbers = numbers

    current().launch(cost(current().spec, op, args, kwargs, results), work)
    return pytree.tree_unflatten(made, shape)


def cost(spec: Spec, op: Any, args: Any, kwargs: Any, results: Any) -> float:
    """Return the seconds of an operation."""
    seconds = spec.seconds.get(str(op.overloadpacket), spec.kernel_seconds)
    counted = flop_registry.get(op.overloadpacket)
    if counted is None:
        return seconds
    return seconds + float(counted(*args, **kwargs, out_val=results)) / spec.flops_per_second


def _call(op: Any, arguments: Any) -> Any:
    args, kwargs = arguments
    return op(*args, **kwargs)


def _as_meta(value: Any) -> Any:
    if on_device(value):
        return buffer(value).meta
    if isinstance(value, Tensor):
        return value.to("meta") if value.dim() else value
    return torch.device("meta") if isinstance(value, torch.device) else value


def _source(value: Any) -> Any:
    """Return what the worker will use of an argument: the slot of ours, a copy of the host's."""
    if on_device(value):
        return buffer(value).slot
    return value.detach().clone() if isinstance(value, Tensor) else value


def _there(source: Any) -> Any:
    if isinstance(source, Slot):
        return source.numbers
    return torch.device("cpu") if isinstance(source, torch.device) else source


def _laid_out(op: Any, source: Any) -> Any:
    """Return what the worker uses. One that goes through memory finds gradients as torch lays them out."""
    there = _there(source)
    in_order = isinstance(there, Tensor) and op.__name__.startswith(IN_MEMORY_ORDER)
    return there.contiguous() if in_order else there


def _made(outputs: list[Any], inputs: list[Buffer], given: list[Tensor]) -> tuple[list[Any], list[Slot | None]]:
    """Return the results and the slots that are still to be filled: an input that is returned is filled already."""
    same = {id(one.meta): tensor for one, tensor in zip(inputs, given, strict=True)}
    shared = {one.meta.untyped_storage()._cdata: one.allocation for one in inputs}
    made: list[Any] = []
    slots: list[Slot | None] = []
    for output in outputs:
        if not isinstance(output, Tensor) or id(output) in same:
            made.append(same.get(id(output), output))
            slots.append(None)
            continue
        slots.append(slot := Slot())
        storage = output.untyped_storage()
        allocation = shared.setdefault(storage._cdata, None) or current().allocator.take(storage.nbytes())  # type: ignore[arg-type]
        shared[storage._cdata] = allocation
        made.append(handle(slot, output, allocation))
    return made, slots


def _at_once(op: Any, flat: list[Any], spec: Any) -> Any:
    """Wait for the device and compute now, as a device has to whose next shape depends on its numbers."""
    current().wait(str(op))
    with torch.no_grad():
        found = _call(op, pytree.tree_unflatten([_there(_source(one)) for one in flat], spec))
    ours = {id(buffer(one).slot.numbers): one for one in flat if on_device(one)}
    return pytree.tree_map(lambda one: ours.get(id(one), _filled(one) if isinstance(one, Tensor) else one), found)


def _filled(numbers: Tensor) -> Tensor:
    slot = Slot()
    slot.numbers = numbers
    return handle(slot, numbers.to("meta"), current().allocator.take(numbers.untyped_storage().nbytes()))


def empty(size: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    """Allocate a tensor."""
    return _allocated(lambda device: torch.empty(size, dtype=dtype, device=device))


def empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> Tensor:
    """Allocate a tensor; for torch it is contiguous all the same."""
    return _allocated(lambda device: torch.empty_strided(size, stride, dtype=dtype, device=device))


def _allocated(make: Callable[[str], Tensor]) -> Tensor:
    slot, meta = Slot(), make("meta")
    allocation: Allocation = current().allocator.take(meta.untyped_storage().nbytes())

    def work() -> None:
        slot.numbers = make("cpu")

    current().append(work)
    return handle(slot, meta, allocation)


def copy_from(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy between host and device, or on the device. As in CUDA, only a non-blocking copy to the device goes on.

    https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
    """
    device, crossing = current(), not (on_device(source) and on_device(into))
    device.copies += crossing
    if on_device(into):
        given, slot = _source(source), buffer(into).slot
        device.launch(_copy_seconds(source, crossing), lambda: _copied(slot, _there(given)))
        if crossing and not non_blocking:
            device.wait("copy to the device")
        return into
    slot = buffer(source).slot
    device.launch(_copy_seconds(source, crossing), lambda: None)
    device.wait("copy to the host")
    return into.copy_(slot.numbers)


def _copied(slot: Slot, numbers: Tensor) -> None:
    with torch.no_grad():
        slot.numbers.copy_(numbers)


def _copy_seconds(source: Tensor, crossing: bool) -> float:
    spec = current().spec
    moved = source.numel() * source.element_size() if crossing else 0
    return spec.kernel_seconds + moved / spec.copy_bytes_per_second


def scalar(tensor: Tensor) -> Any:
    """Return the number in a tensor, once it is there."""
    current().wait("item")
    return buffer(tensor).slot.numbers.item()


def convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> Any:
    """Run the gradient of a convolution, which is not told how long a bias is: one number per channel of the result."""
    return kernel(aten.convolution_backward.default, gradient, inputs, weight, [gradient.shape[1]], *rest)


# `torch.simulated`: what torch and its users expect of a device's module, as `torch.cuda` has it.


class Event:
    """A mark in the device's queue. Its time is the device's own."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        """Every event keeps its time; `enable_timing` is taken as CUDA takes it."""
        self._moment: float | None = None

    def record(self, stream: Any = None) -> None:
        """Put the mark into the queue."""
        current().mark(self._passed)

    def _passed(self, moment: float) -> None:
        self._moment = moment

    def query(self) -> bool:
        """Return whether the device has passed the mark. Waits for nothing."""
        return self._moment is not None and self._moment <= current().clock.now()

    def synchronize(self) -> None:
        """Wait for the mark, which here is to wait for the whole queue."""
        current().wait("event")

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds from this mark to a later one. Raises RuntimeError before both are passed."""
        if self._moment is None or later._moment is None:
            raise RuntimeError("both events must be recorded and passed before their time is asked for")
        return (later._moment - self._moment) * 1e3


class Module:
    """The functions of the module. There is one device, number 0."""

    Event = Event

    def is_available(self) -> bool:
        """Return whether there is a device."""
        return driver.folder() is not None or used()

    def is_initialized(self) -> bool:
        """Return whether this process has used it."""
        return used()

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """Return 1 or 0."""
        return int(self.is_available())

    def current_device(self) -> int:
        """Return 0."""
        return 0

    def set_device(self, device: Any) -> None:
        """Do nothing: there is one."""

    def synchronize(self, device: Any = None) -> None:
        """Wait until the queue is empty. Raises the first error of an operation since the last wait."""
        current().wait("synchronize")

    def work(self, seconds: float) -> None:
        """Let the device work for so long, as a kernel of known length."""
        current().launch(seconds, lambda: None)

    def manual_seed(self, seed: int) -> None:
        """Do nothing: random numbers are drawn with the CPU's generator."""

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing, as `manual_seed`."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """Return the CPU's."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Do nothing: it is the CPU's, which is set by itself."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the types of autocast. It changes nothing here: the numbers stay as wide as they are."""
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        """Return the model."""
        return current().spec.model

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        """Return name, memory in bytes and the identity that the driver knows."""
        spec = current().spec
        return SimpleNamespace(name=spec.model, total_memory=spec.memory_bytes, uuid=driver.UUID)

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes that tensors hold now."""
        return current().allocator.allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the most that they held since the peaks began."""
        return current().allocator.peak_allocated

    def memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that this process keeps from others."""
        return current().allocator.reserved

    def max_memory_reserved(self, device: Any = None) -> int:
        """Return the most that it kept."""
        return current().allocator.peak_reserved

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the free and the total bytes of the device, other processes' included."""
        device_ = current()
        used_bytes = sum(use.bytes for use in driver.living(device_.presence.folder).values())
        return device_.spec.memory_bytes - used_bytes, device_.spec.memory_bytes

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Let this process reserve no more than this part of the device's memory."""
        current().allocator.most = round(fraction * current().spec.memory_bytes)

    def empty_cache(self) -> None:
        """Keep no more than tensors hold."""
        current().allocator.empty_cache()

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Begin the peaks anew."""
        current().allocator.reset_peaks()


# Makes torch know the simulated device. Once a process, and only where somebody wants it.

NEEDED = "_setup_privateuseone_for_python_backend"
"""An experimental function of torch 2.13, by which a device is written in Python. It may change without notice."""

VIEWS = (
    "as_strided",
    "diagonal",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "t",
    "transpose.int",
    "unbind.int",
    "unfold",
    "unsqueeze",
    "view",
    "_reshape_alias",
    "_unsafe_view",
)
"""torch computes these from strides, for every device that does not have its own. Ours are not the numbers' strides."""


def unavailable() -> str | None:
    """Return why this torch cannot have the device; None where it can."""
    from torch.utils import backend_registration

    if hasattr(backend_registration, NEEDED):
        return None
    return f"torch {torch.__version__} has no {NEEDED}, which the simulated device is written with"


@cache
def register() -> tuple[Any, ...]:
    """Make `simulated` a type of device, once; return what must stay alive. Raises RuntimeError where it cannot be."""
    from torch.utils import backend_registration

    if why := unavailable():
        raise RuntimeError(why)

    getattr(backend_registration, NEEDED)("simulated", backend_module=Module())
    return _every_operation(), _operations_of_ours(), _pinned_memory()


def _library(namespace: str) -> Any:
    make: Any = torch.library.Library  # torch gives it no types
    return make(namespace, "IMPL")


def _every_operation() -> Any:

    library = _library("_")
    library.fallback(kernel, "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return library


def _operations_of_ours() -> Any:

    library = _library("aten")
    ours = {
        "empty.memory_format": empty,
        "empty_strided": empty_strided,
        "_copy_from": copy_from,
        "_local_scalar_dense": scalar,
        "convolution_overrideable": _through(torch.ops.aten.convolution.default),
        "convolution_backward_overrideable": convolution_backward,
        **{name: _through(_named(name)) for name in VIEWS},
    }
    for name, function in ours.items():
        library.impl(name, function, "PrivateUse1")
    return library


def _named(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _through(op: Any) -> Any:

    return lambda *args, **kwargs: kernel(op, *args, **kwargs)


def _pinned_memory() -> Any:
    """Let tensors of the host be pinned: a copy that says so. Nothing is faster with it."""
    library = _library("aten")

    def pin(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        copy = tensor.clone()
        copy.untyped_storage().pinned = True  # type: ignore[attr-defined]
        return copy

    def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
        return getattr(tensor.untyped_storage(), "pinned", False)

    library.impl("_pin_memory", pin, "CPU")
    library.impl("is_pinned", is_pinned, "CPU")
    return library
