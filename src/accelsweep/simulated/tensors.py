"""Tensors on the simulated device: a handle that torch sees, and beside it what the device holds.

The handle has a shape, a type and no bytes. Its storage carries a `Buffer` with three things. The same tensor on the
meta device says what views and results look like. The worker puts the numbers into a slot. The third is the allocation.
torch keeps a storage's Python object alive for as long as any tensor uses it, so an allocation ends when the last such
tensor does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accelsweep.simulated.memory import Allocation


class Slot:
    """The numbers of a tensor, a CPU tensor, once the worker has computed them."""

    __slots__ = ("numbers",)
    numbers: Tensor


@dataclass(eq=False)
class Buffer:
    """The device's side of a tensor. Views share the allocation."""

    slot: Slot
    meta: Tensor
    allocation: Allocation


def on_device(value: Any) -> bool:
    """Return whether `value` is a tensor on the simulated device."""
    return isinstance(value, Tensor) and value.device.type == "simulated"


def buffer(tensor: Tensor) -> Buffer:
    """Return what the device holds of a tensor there."""
    found: Buffer = tensor.untyped_storage().simulated  # type: ignore[attr-defined]
    return found


def handle(slot: Slot, meta: Tensor, allocation: Allocation) -> Tensor:
    """Return a new tensor on the device. For torch it is contiguous, whatever the strides of the numbers are.

    A view of a weight is no inference tensor, not even in inference mode. No tensor here is one, which costs little.
    """
    with torch.inference_mode(mode=False):
        made: Tensor = torch._C._acc.create_empty_tensor(tuple(meta.shape), meta.dtype)
    made.untyped_storage().simulated = Buffer(slot, meta, allocation)  # type: ignore[attr-defined]
    return made
