"""Marks in a trace around the forward pass of each module, made by hooks.

Inside what `torch.compile` traces a hook does nothing: the compiled code stays what it is in a measured run. The time
of such code belongs to the nearest module around it that is not compiled.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

MODULE_MARK = "module: "
"""The beginning of a mark's name; the module's path follows."""


def mark_modules(root: nn.Module) -> dict[str, str]:
    """Put marks around every module of `root`; return their classes by their paths. The root's own path is empty."""
    found = {name: module for name, module in root.named_modules() if not isinstance(module, torch.jit.ScriptModule)}
    for name, module in found.items():
        _mark(name, module)
    return {name: type(module).__name__ for name, module in found.items()}


def _mark(name: str, module: nn.Module) -> None:
    opened: list[Any] = []

    def enter(*_: Any) -> None:
        if not torch.compiler.is_compiling():
            opened.append(record_function(MODULE_MARK + name))
            opened[-1].__enter__()

    def leave(*_: Any) -> None:
        if not torch.compiler.is_compiling() and opened:
            opened.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter, prepend=True)
    module.register_forward_hook(leave, always_call=True)
