"""Counts the tokens in each step of one rank, without waiting for its device.

What counts as a token is decided by the first batch: the ones of its `attention_mask`, or else its `labels` other than
-100, or else the positions of its first tensor, if that contains integers in two dimensions. A module may count them
itself, in `tokens(self, batch)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from accelsweep.errors import InputError
from accelsweep.measure.timed_window import StepValues

IGNORED_LABEL = -100
"""The label of positions that do not contribute to the loss, by default, in torch's cross-entropy."""

Count = Callable[[Any], "Tensor | int"]


class TokenCounter:
    """Adds up the tokens of each step. Counts stay on the batch's device until they are read."""

    def __init__(self) -> None:
        """What counts as a token is decided by the first batch."""
        self._count: Count | None = None
        self._decided = False
        self.unit = ""
        self._step: Any = 0
        self._steps = StepValues()

    @property
    def known(self) -> bool:
        """Whether the batches show how many tokens they contain."""
        return self._count is not None

    def add(self, batch: Any, module: Any = None) -> None:
        """Add the tokens of a batch to the current step. Raises InputError for an invalid result of `tokens(batch)`."""
        if not self._decided:
            self._decided = True
            self._count, self.unit = _rule(batch, module)
        if self._count is not None:
            self._step = self._step + self._count(batch)

    def end_step(self) -> None:
        """End the current step."""
        if self._count is not None:
            self._steps.add(self._step)
            self._step = 0

    def restart(self) -> None:
        """Forget all steps so far."""
        self._step, self._steps = 0, StepValues()

    def steps(self) -> list[float]:
        """Return the number of tokens in each step. Waits for the device, so only call this after the window."""
        return [value or 0.0 for value in self._steps.values()]


def _rule(batch: Any, module: Any) -> tuple[Count | None, str]:
    """Return how the tokens in batches like this one are counted, and what a token is; None if there are none."""
    if (count := _module_count(module)) is not None:
        return count, f"tokens(batch) of {type(module).__name__}"
    if isinstance(batch, Mapping):
        for name, count, unit in (
            ("attention_mask", _ones, "ones of attention_mask"),
            ("labels", _labels, f"labels other than {IGNORED_LABEL}"),
        ):
            if _is_sequences(batch.get(name)):
                return _of_key(name, count), unit
        key = next((key for key, value in batch.items() if isinstance(value, Tensor) and value.dim()), None)
        return (_of_key(key, Tensor.numel), f"positions of {key}") if _is_sequences(batch.get(key)) else (None, "")
    first = batch[0] if isinstance(batch, (list, tuple)) and batch else batch
    if not _is_sequences(first):
        return None, ""
    if first is batch:
        return Tensor.numel, "positions"
    return lambda batch: int(batch[0].numel()), "positions of the first tensor"


def _is_sequences(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.dim() != 2:
        return False
    return not value.is_floating_point() and not value.is_complex()


def _of_key(key: Any, count: Callable[[Tensor], Any]) -> Count:
    return lambda batch: count(batch[key])


def _ones(mask: Tensor) -> Tensor:
    return mask.sum()


def _labels(labels: Tensor) -> Tensor:
    return (labels != IGNORED_LABEL).sum()


def _module_count(module: Any) -> Count | None:
    """Return the module's `tokens(self, batch)`, or None; a method with different arguments is ignored."""
    method = getattr(module, "tokens", None)
    if not inspect.ismethod(method) or list(inspect.signature(method).parameters) != ["batch"]:
        return None

    def count(batch: Any) -> Any:
        tokens = method(batch)
        if isinstance(tokens, bool) or not isinstance(tokens, (int, Tensor)):
            raise InputError(f"{type(module).__name__}.tokens(batch) returned {tokens!r}, not a number of tokens")
        return tokens.detach().sum() if isinstance(tokens, torch.Tensor) else tokens

    return count
