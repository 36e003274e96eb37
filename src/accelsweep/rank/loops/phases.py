"""Lightning's own names of its actions, as the phases of a step: a profiler that reports to a `PhaseTimer`.

Lightning calls its profiler around every hook, so nothing of it is replaced. The optimiser's phase begins after
`on_before_optimizer_step`, because the hook `optimizer_step` holds the whole step in its closure.
"""

from __future__ import annotations

from lightning.pytorch.profilers import Profiler

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
            while self._timer.depth > depth:
                self._timer.leave()
        elif action_name.startswith("[LightningModule]") and action_name.endswith(".on_before_optimizer_step"):
            self._timer.enter("optimizer")


def _phase_of(action_name: str) -> str | None:
    hook = action_name.rpartition(".")[2]
    return _PHASES.get(hook) if action_name.startswith(_OWNERS.get(hook, "[")) else None
