"""Losses kept on their device and read after the window, so that no step waits for the device."""

from __future__ import annotations

import math
from typing import Any

COMPACT_EVERY = 256
"""Steps after which the kept scalars become one tensor: CUDA's allocator gives each scalar 512 bytes of its own."""

_THERE = object()
"""Stands for a loss that is on the device."""


class Losses:
    """The loss of each step, in order. A step without a loss (`training_step` returned None) is kept as None."""

    def __init__(self) -> None:
        """Begin with no step."""
        self._recent: list[Any] = []
        self._compact: list[tuple[list[Any], Any]] = []

    def add(self, loss: Any) -> None:
        """Keep a step's loss: a tensor with one element that needs no gradient, a number, or None. Never waits."""
        self._recent.append(loss)
        if len(self._recent) == COMPACT_EVERY:
            self._pack()

    def values(self) -> list[float | None]:
        """Return all losses as numbers. Waits for the device, so call it after the window only."""
        self._pack()
        flat: list[float | None] = []
        for kept, there in self._compact:
            numbers = iter([] if there is None else there.float().cpu().tolist())
            flat.extend(next(numbers) if loss is _THERE else loss for loss in kept)
        return flat

    def _pack(self) -> None:
        recent, self._recent = self._recent, []
        there = [loss.reshape(()) for loss in recent if hasattr(loss, "detach")]
        kept = [_THERE if hasattr(loss, "detach") else None if loss is None else float(loss) for loss in recent]
        self._compact.append((kept, _stacked(there) if there else None))


def _stacked(losses: list[Any]) -> Any:
    import torch

    return torch.stack(losses)


def first_not_finite(losses: list[float | None]) -> int | None:
    """Return the number (from 0) of the first step whose loss is NaN or infinite, or None if there is none."""
    return next((step for step, loss in enumerate(losses) if loss is not None and not math.isfinite(loss)), None)
