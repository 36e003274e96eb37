"""Makes torch know the simulated device. Once a process, and only where somebody wants it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

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
    from accelsweep.simulated.module import Module

    getattr(backend_registration, NEEDED)("simulated", backend_module=Module())
    return _every_operation(), _operations_of_ours(), _pinned_memory()


def _library(namespace: str) -> Any:
    make: Any = torch.library.Library  # torch gives it no types
    return make(namespace, "IMPL")


def _every_operation() -> Any:
    from accelsweep.simulated.kernels import kernel

    library = _library("_")
    library.fallback(kernel, "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    return library


def _operations_of_ours() -> Any:
    from accelsweep.simulated import kernels

    library = _library("aten")
    ours = {
        "empty.memory_format": kernels.empty,
        "empty_strided": kernels.empty_strided,
        "_copy_from": kernels.copy_from,
        "_local_scalar_dense": kernels.scalar,
        "convolution_overrideable": _through(torch.ops.aten.convolution.default),
        "convolution_backward_overrideable": kernels.convolution_backward,
        **{name: _through(_named(name)) for name in VIEWS},
    }
    for name, function in ours.items():
        library.impl(name, function, "PrivateUse1")
    return library


def _named(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _through(op: Any) -> Any:
    from accelsweep.simulated.kernels import kernel

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
