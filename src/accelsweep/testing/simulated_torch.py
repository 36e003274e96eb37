"""The simulated device's torch backend, computing shapes eagerly on the meta device and data lazily on the CPU."""

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
from accelsweep.testing.simulator import Allocation, Buffer, Slot, buffer, current, handle, is_used, on_device

aten = torch.ops.aten

RESHAPE_OPS = {aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default}
"""Operations that return a view in torch, which considers all tensors contiguous, but may need to copy data here."""

CONTIGUOUS_OPS = ("_fused", "linalg_vector_norm")
"""Name prefixes of operations on gradients whose result depends on the memory layout.

torch copies gradients whose strides differ from those of the parameter, but it cannot see strides on this device.
"""


def kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run any operation asynchronously: allocate its results, queue its work, and return."""
    if op in RESHAPE_OPS:
        op, args = aten.reshape.default, args[:2]
    flat, spec = pytree.tree_flatten((args, kwargs))
    try:
        results = _call(op, pytree.tree_unflatten([_as_meta(one) for one in flat], spec))
    except (NotImplementedError, RuntimeError):
        return _run_synchronously(op, flat, spec)  # the result's shape depends on the data, or the call is invalid
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
    """Return the device seconds of an operation."""
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
    """Return what the worker thread needs for an argument: the slot of a device tensor, or a copy of a host tensor."""
    if on_device(value):
        return buffer(value).slot
    return value.detach().clone() if isinstance(value, Tensor) else value


def _there(source: Any) -> Any:
    if isinstance(source, Slot):
        return source.numbers
    return torch.device("cpu") if isinstance(source, torch.device) else source


def _laid_out(op: Any, source: Any) -> Any:
    """Return the worker thread's argument, made contiguous if the operation's result depends on the memory layout."""
    there = _there(source)
    in_order = isinstance(there, Tensor) and op.__name__.startswith(CONTIGUOUS_OPS)
    return there.contiguous() if in_order else there


def _made(outputs: list[Any], inputs: list[Buffer], given: list[Tensor]) -> tuple[list[Any], list[Slot | None]]:
    """Return the results and the slots to fill; the slot is None for a result that is also an input."""
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


def _run_synchronously(op: Any, flat: list[Any], spec: Any) -> Any:
    """Wait for the device and compute eagerly, as on any device if the result's shape depends on the data."""
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
    """Allocate a tensor, which torch considers contiguous."""
    return _allocated(lambda device: torch.empty_strided(size, stride, dtype=dtype, device=device))


def _allocated(make: Callable[[str], Tensor]) -> Tensor:
    slot, meta = Slot(), make("meta")
    allocation: Allocation = current().allocator.take(meta.untyped_storage().nbytes())

    def work() -> None:
        slot.numbers = make("cpu")

    current().append(work)
    return handle(slot, meta, allocation)


def copy_from(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    """Copy between host and device or within the device. As in CUDA, only non-blocking copies to the device are async.

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
    """Wait for the device and return the value of a single-element tensor."""
    current().wait("item")
    return buffer(tensor).slot.numbers.item()


def convolution_backward(gradient: Tensor, inputs: Tensor, weight: Tensor, *rest: Any) -> Any:
    """Compute the gradients of a convolution. torch omits the bias size, which is the number of output channels."""
    return kernel(aten.convolution_backward.default, gradient, inputs, weight, [gradient.shape[1]], *rest)


class Event:
    """A mark in the queue, timestamped by the device."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, **_: Any) -> None:
        """All events are timed; `enable_timing` exists for compatibility with CUDA."""
        self._moment: float | None = None

    def record(self, stream: Any = None) -> None:
        """Queue the mark."""
        current().mark(self._passed)

    def _passed(self, moment: float) -> None:
        self._moment = moment

    def query(self) -> bool:
        """Return whether the device has passed the mark, without waiting."""
        return self._moment is not None and self._moment <= current().clock.now()

    def synchronize(self) -> None:
        """Wait for the whole queue, including the mark."""
        current().wait("event")

    def elapsed_time(self, later: Event) -> float:
        """Return the milliseconds until a later mark. Raises RuntimeError unless both marks have been passed."""
        if self._moment is None or later._moment is None:
            raise RuntimeError("both events must be recorded and completed before calculating elapsed time")
        return (later._moment - self._moment) * 1e3


class Module:
    """The `torch.simulated` module, modelled on `torch.cuda`, with a single device whose index is 0."""

    Event = Event

    def is_available(self) -> bool:
        """Return whether there is a device."""
        return driver.folder() is not None or is_used()

    def is_initialized(self) -> bool:
        """Return whether this process has used the device."""
        return is_used()

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """Return 1 if there is a device, otherwise 0."""
        return int(self.is_available())

    def current_device(self) -> int:
        """Return 0."""
        return 0

    def set_device(self, device: Any) -> None:
        """Do nothing: there is only one device."""

    def synchronize(self, device: Any = None) -> None:
        """Wait until the queue is empty. Raises the first error that occurred since the last wait."""
        current().wait("synchronize")

    def work(self, seconds: float) -> None:
        """Launch a kernel of known duration."""
        current().launch(seconds, lambda: None)

    def manual_seed(self, seed: int) -> None:
        """Do nothing, because random numbers come from the CPU's generator."""

    def manual_seed_all(self, seed: int) -> None:
        """Do nothing, like `manual_seed`."""

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """Return the state of the CPU's generator."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Do nothing, because the CPU's generator is restored separately."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """Return the dtypes accepted by autocast, which has no effect on this device: data keeps its dtype."""
        return [torch.bfloat16, torch.float16]

    def get_device_name(self, device: Any = None) -> str:
        """Return the device's model name."""
        return current().spec.model

    def get_device_properties(self, device: Any = None) -> SimpleNamespace:
        """Return the name, the memory in bytes and the UUID."""
        spec = current().spec
        return SimpleNamespace(name=spec.model, total_memory=spec.memory_bytes, uuid=driver.UUID)

    def memory_allocated(self, device: Any = None) -> int:
        """Return the bytes allocated for tensors."""
        return current().allocator.allocated

    def max_memory_allocated(self, device: Any = None) -> int:
        """Return the peak allocated bytes."""
        return current().allocator.peak_allocated

    def memory_reserved(self, device: Any = None) -> int:
        """Return the bytes that this process has reserved."""
        return current().allocator.reserved

    def max_memory_reserved(self, device: Any = None) -> int:
        """Return the peak reserved bytes."""
        return current().allocator.peak_reserved

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Return the device's free and total memory in bytes, taking all processes into account."""
        device_ = current()
        used_bytes = sum(use.bytes for use in driver.active_processes(device_.usage.folder).values())
        return device_.spec.memory_bytes - used_bytes, device_.spec.memory_bytes

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Limit the memory this process may reserve to a share of the device's memory."""
        current().allocator.most = round(fraction * current().spec.memory_bytes)

    def empty_cache(self) -> None:
        """Release memory not used by any tensor."""
        current().allocator.empty_cache()

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Reset the peaks."""
        current().allocator.reset_peaks()


SETUP_FUNCTION = "_setup_privateuseone_for_python_backend"
"""An experimental function of torch 2.13 for devices written in Python; it may change without notice."""

VIEW_OPS = (
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
"""Operations that must be overridden, because torch's implementations assume strides that the data does not have."""


def unavailable() -> str | None:
    """Return why this version of torch does not support the device, or None if it does."""
    from torch.utils import backend_registration

    if hasattr(backend_registration, SETUP_FUNCTION):
        return None
    return f"torch {torch.__version__} has no {SETUP_FUNCTION}, which the simulated device needs"


@cache
def register() -> tuple[Any, ...]:
    """Register the device type `simulated` once; return objects to keep alive. Raises RuntimeError if unsupported."""
    from torch.utils import backend_registration

    if why := unavailable():
        raise RuntimeError(why)

    getattr(backend_registration, SETUP_FUNCTION)("simulated", backend_module=Module())
    return _fallback_kernels(), _kernels(), _pinned_memory()


def _library(namespace: str) -> Any:
    make: Any = torch.library.Library  # untyped in torch
    return make(namespace, "IMPL")


def _fallback_kernels() -> Any:

    library = _library("_")
    library.fallback(kernel, "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return library


def _kernels() -> Any:

    library = _library("aten")
    ours = {
        "empty.memory_format": empty,
        "empty_strided": empty_strided,
        "_copy_from": copy_from,
        "_local_scalar_dense": scalar,
        "convolution_overrideable": _through(torch.ops.aten.convolution.default),
        "convolution_backward_overrideable": convolution_backward,
        **{name: _through(_named(name)) for name in VIEW_OPS},
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
    """Support pinning of host tensors by returning a copy that is marked as pinned but is no faster to transfer."""
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
