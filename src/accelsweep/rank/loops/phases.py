"""Lightning's own names of its actions, as the phases of a step: a profiler that reports to a `PhaseTimer`.

Lightning calls its profiler around every hook, so nothing of it is replaced. The optimiser's phase begins after
`on_before_optimizer_step`, because the hook `optimizer_step` holds the whole step in its closure.

With manual optimisation all of this happens inside of `training_step`, where Lightning has no hooks. There torch itself
is listened to, for as long as a pass is timed: `by_hand`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from accelsweep.measure.breakdown import PhaseTimer

_PHASES = {
    "train_dataloader_next": "data_wait",
    "batch_to_device": "host_to_device",
    "training_step": "forward",
    "backward": "backward",
    "optimizer_zero_grad": "optimizer",
    "optimizer_step": "overhead",
}
_OWNERS = {
    "batch_to_device": "[Strategy]",
    "training_step": "[Strategy]",
    "backward": "[Strategy]",
    "optimizer_zero_grad": "[LightningModule]",
    "optimizer_step": "[LightningModule]",
}
"""Hooks that several owners have; the outermost call counts."""


class PhaseProfiler(Profiler):
    """Turns Lightning's actions into phases."""

    def __init__(self, timer: PhaseTimer) -> None:
        """`timer` is told about every phase."""
        super().__init__()
        self._timer = timer
        self._depths: list[int] = []

    def start(self, action_name: str) -> None:
        """Enter the action's phase, if it is one."""
        phase = _phase_of(action_name)
        if phase is not None:
            self._depths.append(self._timer.depth)
            self._timer.enter(phase)

    def stop(self, action_name: str) -> None:
        """Leave the phase and all phases inside it."""
        if _phase_of(action_name) is not None:
            depth = self._depths.pop()
            self._timer.leave_to(depth)
        elif action_name.startswith("[LightningModule]") and action_name.endswith(".on_before_optimizer_step"):
            self._timer.enter("optimizer")


def _phase_of(action_name: str) -> str | None:
    hook = action_name.rpartition(".")[2]
    return _PHASES.get(hook) if action_name.startswith(_OWNERS.get(hook, "[")) else None


@contextmanager
def by_hand(timer: PhaseTimer) -> Iterator[None]:
    """Tell `timer` of gradients that are taken, and of optimisers that step, within a forward phase.

    A closure that an optimiser calls is forward again. So is what `training_step` does after all of this.
    """
    depths: list[int | None] = []

    def before(_: object, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        within = timer.innermost == "forward"
        depths.append(timer.depth if within else None)
        if within:
            timer.enter("optimizer")
            given = tuple(_forward(timer, one) if callable(one) else one for one in given)
            options = {name: _forward(timer, one) if name == "closure" else one for name, one in options.items()}
        return given, options

    def after(*_: object) -> None:
        if (depth := depths.pop()) is not None:
            timer.leave_to(depth)

    passes = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}
    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        for name, call in passes.items():
            setattr(torch.autograd, name, _backward(timer, call))
        yield
    finally:
        for name, call in passes.items():
            setattr(torch.autograd, name, call)
        for hook in hooks:
            hook.remove()


def _backward(timer: PhaseTimer, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def timed(*given: Any, **options: Any) -> Any:
        if timer.innermost != "forward":
            return call(*given, **options)
        return timer.around("backward", call)(*given, **options)

    return timed


def _forward(timer: PhaseTimer, closure: Any) -> Any:
    if closure is None:
        return None

    def timed() -> Any:
        depth = timer.depth
        timer.enter("forward")
        try:
            return closure()
        finally:
            timer.leave_to(depth)

    return timed
