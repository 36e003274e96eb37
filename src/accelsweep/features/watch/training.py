"""What a training shows of its setting while it runs: batches, precision and device, and how long it waits for data."""

from __future__ import annotations

import statistics
from collections import defaultdict
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import dataloader

from accelsweep.features.watch.measured_rate import LiveSetting
from accelsweep.worker.loops.script import first_tensor, precision_of


class WatchedTraining:
    """Notes the batches that loaders yield and the autocast that is entered, until `learned`; then only times loaders.

    Modules get no hooks: these would make torch compile the model again.
    """

    def __init__(self) -> None:
        """Start watching."""
        self.waited_seconds = 0.0
        self._batches = defaultdict[int, list[int]](list)
        self._autocast = set[torch.dtype]()
        self._is_learning = True
        self._restore_loaders, self._restore_autocast = self._watch_loaders(), self._watch_autocast()

    def _watch_loaders(self) -> Any:
        iterator: Any = dataloader._BaseDataLoaderIter
        fetch = iterator.__next__

        def timed(loader: Any) -> Any:
            began = perf_counter()
            batch = fetch(loader)
            self.waited_seconds += perf_counter() - began
            if self._is_learning and (first := first_tensor(batch)) is not None:
                self._batches[id(loader._dataset)].append(first.shape[0])
            return batch

        return _replace(iterator, "__next__", timed)

    def _watch_autocast(self) -> Any:
        enter = torch.autocast.__enter__

        def noting(context: Any) -> Any:
            if context._enabled:
                self._autocast.add(context.fast_dtype)
            return enter(context)  # type: ignore[no-untyped-call]

        return _replace(torch.autocast, "__enter__", noting)

    def learned(self, optimizer: torch.optim.Optimizer, steps: int, ranks: int) -> tuple[LiveSetting, int | None]:
        """Return the setting that the first `steps` have shown, and the samples per step of this rank; None if unseen.

        A loader that was read less than once in a step does not feed the training.
        """
        self._is_learning = False
        self._restore_autocast()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        device, dtypes = parameters[0].device.type, {parameter.dtype for parameter in parameters}
        batches: list[int] = max(self._batches.values(), key=len, default=[])
        size, per_step = (statistics.mode(batches), round(len(batches) / steps)) if batches else (None, 0)
        samples = size * per_step if size is not None and per_step else None
        precision = precision_of(self._autocast, dtypes)
        return LiveSetting(size if samples else None, ranks, device, precision), samples

    def leave(self) -> None:
        """Stop watching."""
        self._restore_loaders()
        self._restore_autocast()


def _replace(owner: Any, name: str, new: Any) -> Any:
    """Replace an attribute, and return a function that restores it unless it has been replaced again."""
    old = getattr(owner, name)
    setattr(owner, name, new)

    def restore() -> None:
        if getattr(owner, name) is new:
            setattr(owner, name, old)

    return restore
