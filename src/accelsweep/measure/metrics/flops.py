"""Floating-point operations of a training step or a forward pass, on the meta device, where nothing is computed.

Every operation counts for which torch has a formula (matrix products, convolutions, attention), forward and backward. A
multiplication and an addition are two operations. Element-wise work does not count. On the meta device `nn.LSTM` and
similar layers consist of matrix products. On a CPU a whole layer is one operation without a formula, and would count 0.
Attention is two products there, and the recomputation of activation checkpointing is left out. These are the model's
operations, not the hardware's (A. Chowdhery et al., "PaLM", 2022, appendix B).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


class NotCounted(Exception):
    """The operations could not be counted; the message says why."""


def training_flops(step: Callable[[], Any]) -> int:
    """Return the operations of `step()`, which gives a loss on the meta device, and of the loss's backward pass.

    Raises NotCounted where it gives none, or a loss that needs no gradient, and any error of `step` itself.
    """
    counter = _Counter()
    with eager(), counter:
        loss = step()
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            raise NotCounted("the training step gave no loss that needs a gradient")
        counter.in_backward = True
        loss.backward()  # type: ignore[no-untyped-call]
    return counter.total


def forward_flops(step: Callable[[], Any]) -> int:
    """Return the operations of `step()` on the meta device, without gradients. Errors of `step` pass through."""
    counter = _Counter()
    with torch.no_grad(), eager(), counter:
        step()
    return counter.total


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the formulas of torch's own registry. In the backward pass only recomputation runs with gradients on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self.in_backward = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:
                decomposed = func.decompose(*args, **kwargs)
            if decomposed is not NotImplemented:
                return decomposed
        result = func(*args, **kwargs)
        if formula is not None and not (self.in_backward and torch.is_grad_enabled()):
            self.total += formula(*args, **kwargs, out_val=result)
        return result


def eager() -> AbstractContextManager[Any]:
    """Run compiled modules as they are written; torch's compiler is not imported if no module uses it."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
