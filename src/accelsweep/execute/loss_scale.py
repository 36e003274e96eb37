"""What fp16's loss scaling did: the scale at the end, and how many optimiser steps it skipped for overflows.

P. Micikevicius et al., "Mixed Precision Training" (2018), section 3.2: gradients that overflow are thrown away, their
step is skipped and the scale is lowered. Skipped steps are the steps that the scaler was asked for less those that the
optimiser made, which a hook of the optimiser counts. A fused optimiser is always called and skips inside of its kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from accelsweep.core.record import Metric

SCOPE = "rank 0, warm-up and window"


class LossScale:
    """Watches a gradient scaler and the one optimiser that it steps; without a scaler there is nothing to watch."""

    def __init__(self, precision: str, scaler: Any = None, optimizer: torch.optim.Optimizer | None = None) -> None:
        """`scaler` is a torch GradScaler; None, or one that is not enabled, scales nothing.

        `optimizer` is None where there are several, whose steps nobody tells apart.
        """
        self._precision = precision
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._uncounted = None
        if optimizer is None:
            self._uncounted = "there are several optimisers, and a scaler may skip for each of them"
        elif getattr(optimizer, "_step_supports_amp_scaling", False):
            self._uncounted = "a fused optimiser skips inside of its kernel, where nobody counts: optimizer.fused=false"
        self._made = 0
        if self._scaler is not None and optimizer is not None:
            optimizer.register_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self._made += 1

    def metrics(self, steps: int) -> dict[str, Metric]:
        """Return `loss_scale` and `skipped_steps`, `steps` optimiser steps having been due. Waits for the device."""
        if self._scaler is None:
            reason = f"precision={self._precision} scales no loss; 16-mixed does"
            return {
                "loss_scale": Metric(value=None, unit="1", reason=reason),
                "skipped_steps": Metric(value=None, unit="steps", reason=reason),
            }
        skipped = Metric(value=float(steps - self._made), unit="steps", scope=SCOPE, provenance="counter")
        if self._uncounted is not None:
            skipped = Metric(value=None, unit="steps", reason=self._uncounted, scope=SCOPE)
        return {
            "loss_scale": Metric(value=float(self._scaler.get_scale()), unit="1", scope="rank 0, after the window"),
            "skipped_steps": skipped,
        }
