"""The results of fp16's loss scaling: the final scale, and how many optimiser steps were skipped for overflows.

P. Micikevicius et al., "Mixed Precision Training" (2018), section 3.2: gradients that overflow are thrown away, their
step is skipped and the scale is lowered. A step is skipped where the scaler was asked for it and the optimiser, whose
steps a hook counts, made none. A fused optimiser is always called and skips inside of its kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from accelsweep.core.recorded.record import Metric

SCOPE = "rank 0, warm-up and window"
_NEVER_ASKED = "no step went through the Trainer's gradient scaler: under manual optimisation, step self.optimizers()"


class LossScale:
    """Watches a gradient scaler and the one optimiser that it steps; without a scaler there is nothing to watch."""

    def __init__(self, precision: str, scaler: Any = None, optimizer: torch.optim.Optimizer | None = None) -> None:
        """`scaler` is a torch GradScaler; None, or one that is not enabled, scales nothing.

        `optimizer` is None where there are several, whose steps cannot be told apart.
        """
        self._precision = precision
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._uncounted = None
        if optimizer is None:
            self._uncounted = "there are several optimisers, and a scaler may skip for each of them"
        elif getattr(optimizer, "_step_supports_amp_scaling", False):
            self._uncounted = "a fused optimiser skips inside of its kernel, where nobody counts: optimizer.fused=false"
        self._made = self._asked = self._skipped = 0
        if self._scaler is not None and optimizer is not None:
            optimizer.register_step_post_hook(self._count)
            self._ask, self._scaler.step = self._scaler.step, self._step

    def _count(self, *_: Any) -> None:
        self._made += 1

    def _step(self, *arguments: Any, **options: Any) -> Any:
        """Do the scaler's `step`, and look whether the optimiser made one."""
        made = self._made
        found = self._ask(*arguments, **options)
        self._asked += 1
        self._skipped += self._made == made
        return found

    def metrics(self) -> dict[str, Metric]:
        """Return `loss_scale` and `skipped_steps`. Waits for the device."""
        if self._scaler is None:
            reason = f"precision={self._precision} scales no loss; 16-mixed does"
            return {
                "loss_scale": Metric(value=None, unit="1", reason=reason),
                "skipped_steps": Metric(value=None, unit="steps", reason=reason),
            }
        uncounted = self._uncounted or (None if self._asked else _NEVER_ASKED)
        skipped = Metric(value=float(self._skipped), unit="steps", scope=SCOPE, provenance="counter")
        if uncounted is not None:
            skipped = Metric(value=None, unit="steps", reason=uncounted, scope=SCOPE)
        return {
            "loss_scale": Metric(value=float(self._scaler.get_scale()), unit="1", scope="rank 0, after the window"),
            "skipped_steps": skipped,
        }
