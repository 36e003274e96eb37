"""`self.log` without a Trainer: what a module logs in the bare loop is kept on the device and read when asked.

As in Lightning, a value logged while training counts as it was last, and one logged while validating, or with
`on_epoch=True`, as its mean over the phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torchmetrics import Metric


class RawLog:
    """Sums of logged values, weighted by their batch size; of a value that counts as it was last, that value alone."""

    def __init__(self, device: torch.device) -> None:
        """`device` is where the ranks' sums meet."""
        self._device = device
        self._sums: dict[str, tuple[Any, float]] = {}
        self._metrics: dict[str, Metric] = {}
        self._validating = False

    def listen_to(self, module: pl.LightningModule) -> None:
        """Replace the `log` and `log_dict` of a module: they need a Trainer."""
        module.log = self._log  # type: ignore[method-assign]
        module.log_dict = self._log_dict  # type: ignore[method-assign, assignment]

    def begin(self, *, validating: bool) -> None:
        """Forget what was logged: training begins, or validation."""
        self._sums.clear()
        for metric in self._metrics.values():
            metric.reset()
        self._metrics.clear()
        self._validating = validating

    def means(self, across_ranks: bool) -> dict[str, float]:
        """Return each name's last value or mean. Waits for the device; with `across_ranks` every rank must call it."""
        found = {}
        for name, (total, weight) in self._sums.items():
            pair = torch.tensor([float(total), weight], dtype=torch.float32, device=self._device)
            if across_ranks:
                torch.distributed.all_reduce(pair)
            found[name] = float(pair[0] / pair[1])
        return found | {name: float(metric.compute()) for name, metric in self._metrics.items()}

    def _log(
        self,
        name: str,
        value: Any,
        *_: Any,
        on_epoch: bool | None = None,
        batch_size: int | None = None,
        **__: Any,
    ) -> None:
        if isinstance(value, Metric):  # it averages, and meets its likes on other ranks, by itself
            self._metrics[name] = value
            return
        weight = float(batch_size or 1)
        averaged = self._validating if on_epoch is None else on_epoch
        total, weights = self._sums.get(name, (0.0, 0.0)) if averaged else (0.0, 0.0)
        scalar = value.detach() if hasattr(value, "detach") else value
        self._sums[name] = (total + scalar * weight, weights + weight)

    def _log_dict(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **options)
