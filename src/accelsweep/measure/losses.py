"""Losses kept on their device and read after the window, so that no step waits for the device."""

from __future__ import annotations

import math
from typing import Any

COMPACT_EVERY = 256
"""Steps after which the kept scalars become one tensor: CUDA's allocator gives each scalar 512 bytes of its own."""


class Losses:
    """The loss of each step, in order. A step without a loss (`training_step` returned None) is kept as None."""

    def __init__(self) -> None:
        """Begin with no step."""
        self._recent: list[Any] = []
        self._compact: list[Any] = []

    def add(self, loss: Any) -> None:
        """Keep a step's loss: a tensor with one element that needs no gradient, a number, or None. Never waits."""
        self._recent.append(loss)
        if len(self._recent) == COMPACT_EVERY:
            self._pack()

    def values(self) -> list[float | None]:
        """Return all losses as numbers. Waits for the device, so call it after the window only."""
        self._pack()
        flat: list[float | None] = []
        for item in self._compact:
            flat.extend(item if isinstance(item, list) else item.float().cpu().tolist())
        return flat

    def _pack(self) -> None:
        recent, self._recent = self._recent, []
        if recent and all(hasattr(loss, "detach") for loss in recent):
            import torch

            self._compact.append(torch.stack([loss.reshape(()) for loss in recent]))
        else:
            self._compact.append([None if loss is None else float(loss) for loss in recent])


def first_not_finite(losses: list[float | None]) -> int | None:
    """Return the number (from 0) of the first step whose loss is NaN or infinite, or None if there is none."""
    return next((step for step, loss in enumerate(losses) if loss is not None and not math.isfinite(loss)), None)
