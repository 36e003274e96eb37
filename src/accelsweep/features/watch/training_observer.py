"""What a training shows of its setting while it runs: batches, precision and device, and how long it waits for data."""

from __future__ import annotations

import functools
import statistics
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch.utils.data import dataloader

from accelsweep.features.watch.measured_rate import LiveSetting
from accelsweep.worker.loops.script import first_tensor, precision_of


class TrainingObserver:
    """Notes the batches that loaders yield and the autocast that is entered, until `learned`.

    Then it only times the loader that feeds the training. Modules get no hooks, because torch would compile the model
    with them, and again without. Nothing here raises within the training.
    """

    def __init__(self) -> None:
        """Start observing."""
        self.waited_seconds = 0.0
        self._restore_autocast: Callable[[], None] = lambda: None
        self._restore_loaders = self._time_loaders()
        self.begin()

    def begin(self) -> None:
        """Begin to learn the setting of a training."""
        self._batches = defaultdict[int, list[int]](list)
        self._steps = defaultdict[int, list[list[int]]](list)
        self._autocast = set[torch.dtype]()
        self._is_learning, self._feeding, self._count = True, 0, 0
        self._restore_autocast()
        self._restore_autocast = self._note_autocast()

    def step_ended(self) -> None:
        """Note which batches the step that has just ended was fed with."""
        self._count += 1
        for loader, sizes in self._batches.items():
            self._steps[loader].append(sizes)
        self._batches = defaultdict(list)

    def _time_loaders(self) -> Callable[[], None]:
        iterator: Any = dataloader._BaseDataLoaderIter
        fetch = iterator.__next__

        def timed(loader: Any) -> Any:
            began = perf_counter()
            batch = fetch(loader)
            if self._is_learning:
                self._note_batch(loader, batch)
            elif id(loader._index_sampler) == self._feeding:
                self.waited_seconds += perf_counter() - began
            return batch

        return _replace(iterator, "__next__", timed)

    def _note_batch(self, loader: Any, batch: Any) -> None:
        try:
            if (first := first_tensor(batch)) is not None:
                self._batches[id(loader._index_sampler)].append(first.shape[0])
        except Exception:  # noqa: BLE001  whatever the user's batch is
            self._batches.clear()

    def _note_autocast(self) -> Callable[[], None]:
        enter = torch.autocast.__enter__

        @functools.wraps(enter)  # TorchScript reads the source of what is wrapped
        def noting(context: Any) -> Any:
            if self._is_learning and getattr(context, "_enabled", False):
                self._autocast.add(context.fast_dtype)
            return enter(context)  # type: ignore[no-untyped-call]

        return _replace(torch.autocast, "__enter__", noting)

    def learned(self, optimizer: Any, ranks: int) -> tuple[LiveSetting, float | None, torch.device]:
        """Return the setting that the steps have shown, the mean samples per step of this rank, and its device.

        The samples are None if no loader was read in most steps: that one feeds the training. The batch size is that of
        most batches, because the last one of an epoch may be short. Raises ValueError if the optimiser has no
        parameters.
        """
        self._is_learning = False
        self._restore_autocast()
        parameters = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
        if not parameters:
            raise ValueError("the optimiser has no parameters")
        device, dtypes = parameters[0].device, {parameter.dtype for parameter in parameters}
        self._feeding, steps = max(self._steps.items(), key=lambda item: len(item[1]), default=(0, []))
        sizes = [size for step in steps for size in step]
        size = statistics.mode(sizes) if 2 * len(steps) > self._count else None
        samples = None if size is None else statistics.fmean(sizes) * statistics.median(map(len, steps))
        live = LiveSetting(size, ranks, device.type, precision_of(self._autocast, dtypes))
        return live, samples, device

    def restore(self) -> None:
        """Stop observing, and restore what was replaced."""
        self._restore_loaders()
        self._restore_autocast()


def _replace(owner: Any, name: str, new: Any) -> Callable[[], None]:
    """Replace an attribute, and return a function that restores it unless it has been replaced again."""
    old = getattr(owner, name)
    setattr(owner, name, new)

    def restore() -> None:
        if getattr(owner, name) is new:
            setattr(owner, name, old)

    return restore
