"""Every operation on the simulated device: its shape at once from the meta device, its numbers later from the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import flop_registry

from accelsweep.machine.drivers.simulated import Spec
from accelsweep.simulated.current import current
from accelsweep.simulated.memory import Allocation
from accelsweep.simulated.tensors import Buffer, Slot, buffer, handle, on_device

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
