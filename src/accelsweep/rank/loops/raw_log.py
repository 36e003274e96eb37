"""`self.log` without a Trainer: values that a module logs in the raw loop stay on the device and are read when asked.

As in Lightning, the last of the values logged while training counts. While validating, or with `on_epoch=True`, the
mean over the samples of the phase counts: a short last batch counts for less than a full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.data import extract_batch_size
from torchmetrics import Metric

from accelsweep.base.errors import Unsupported

_MEANS = ("mean", "avg", torch.mean)


class RawLog:
    """Sums of logged values, weighted by their batch size; of a value that counts as it was last, that value alone.

    The loop shows each `batch` before its step.
    """

    def __init__(self, device: torch.device) -> None:
        """`device` is where the ranks' sums meet."""
        self._device = device
        self.batch: Any = None
        self._sums: dict[str, tuple[Any, float]] = {}
        self._metrics: dict[str, Metric] = {}
        self._validating = False

    def listen_to(self, module: pl.LightningModule) -> None:
        """Replace the `log` and `log_dict` of a module: they need a Trainer."""
        module.log = self._log  # type: ignore[method-assign]
        module.log_dict = self._log_dict  # type: ignore[method-assign, assignment]

    def begin(self, *, validating: bool) -> None:
        """Forget the logged values: training begins, or validation."""
        self.batch = None
        self._sums.clear()
        for metric in self._metrics.values():
            metric.reset()
        self._metrics.clear()
        self._validating = validating

    def means(self, across_ranks: bool) -> dict[str, float]:
        """Return each name's last value or mean. Waits for the device; with `across_ranks` every rank must call it."""
        found = {}
        for name, (total, weight) in self._sums.items():
            pair = [float(total), weight]
            if across_ranks:
                shared = torch.tensor(pair, dtype=torch.float64, device=self._device)
                torch.distributed.all_reduce(shared)
                pair = shared.tolist()
            found[name] = pair[0] / pair[1]
        return found | {name: float(metric.compute()) for name, metric in self._metrics.items()}

    def _log(
        self,
        name: str,
        value: Any,
        *_: Any,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        batch_size: int | None = None,
        **__: Any,
    ) -> None:
        if isinstance(value, Metric):  # it averages, also over ranks, by itself
            self._metrics[name] = value
            return
        if not (self._validating if on_epoch is None else on_epoch):
            self._sums[name] = (_wide(value), 1.0)
            return
        if reduce_fx not in _MEANS:
            shown = getattr(reduce_fx, "__name__", reduce_fx)
            raise Unsupported(
                f"loop=raw averages logged values, but {name!r} has reduce_fx={shown}: use loop=lightning"
            )
        weight = float(extract_batch_size(self.batch) if batch_size is None else batch_size)
        total, weights = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (total + _wide(value) * weight, weights + weight)

    def _log_dict(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **options)


def _wide(value: Any) -> Any:
    """Return a number that can be summed, a tensor as a copy: whole numbers and 16 bits as float32."""
    if not isinstance(value, torch.Tensor):
        return value
    wide = value.dtype in (torch.float32, torch.float64)
    return value.detach().to(value.dtype if wide else torch.float32, copy=True)
