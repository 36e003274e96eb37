"""Counts the tokens in each step of one rank, without waiting for its device.

What counts as a token is decided by the first batch, if it contains sequences, which are integers in two dimensions:
the ones of its `attention_mask`, or else its `labels` other than -100, or else all positions. A module may count them
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
    """Adds up the tokens of each step. Counts stay on the batch's device until they are read.

    `positions` contains the positions of the sequences in each step, padding included, for which a device computes.
    """

    def __init__(self) -> None:
        """What counts as a token is decided by the first batch."""
        self._count: Count | None = None
        self._decided = False
        self.unit = ""
        self._step: Any = 0
        self._positions = 0
        self._steps = StepValues()
        self._sequences: Callable[[Any], Any] = lambda _: None
        self.positions: list[int] = []

    @property
    def known(self) -> bool:
        """Whether the batches show how many tokens they contain."""
        return self._count is not None

    def add(self, batch: Any, module: Any = None) -> None:
        """Add the tokens of a batch to the current step. Raises InputError for an invalid result of `tokens(batch)`."""
        if not self._decided:
            self._decided = True
            self._sequences = _sequences_in(batch)
            self._count, self.unit = _rule(batch, module)
        if self._count is not None:
            self._step = self._step + self._count(batch)
            sequences = self._sequences(batch)
            self._positions += 0 if sequences is None else sequences.numel()

    def end_step(self) -> None:
        """End the current step."""
        if self._count is not None:
            self._steps.add(self._step)
            self.positions.append(self._positions)
            self._step = self._positions = 0

    def restart(self) -> None:
        """Forget all steps so far."""
        self._step, self._steps, self._positions, self.positions = 0, StepValues(), 0, []

    def steps(self) -> list[float]:
        """Return the number of tokens in each step. Waits for the device, so only call this after the window."""
        return [value or 0.0 for value in self._steps.values()]


def _sequences_in(batch: Any) -> Callable[[Any], Any]:
    """Return a function that finds the sequences of tokens in batches like this one: integers in two dimensions."""
    if isinstance(batch, Mapping):
        named = (key for key in ("input_ids", *batch) if _is_sequences(batch.get(key)))
        key = next((key for key in named if key not in ("labels", "attention_mask")), None)
        return lambda batch: None if key is None else batch.get(key)
    if isinstance(batch, (list, tuple)):
        return lambda batch: batch[0] if batch and _is_sequences(batch[0]) else None
    return lambda batch: batch if _is_sequences(batch) else None


def _rule(batch: Any, module: Any) -> tuple[Count | None, str]:
    """Return how the tokens in batches like this one are counted, and what a token is; None if there are none."""
    if (count := _module_count(module)) is not None:
        return count, f"tokens(batch) of {type(module).__name__}"
    find = _sequences_in(batch)
    sequences = find(batch)
    if sequences is None:
        return None, ""
    if isinstance(batch, Mapping):
        for name, counted, unit in (
            ("attention_mask", _ones, "ones of attention_mask"),
            ("labels", _labels, f"labels other than {IGNORED_LABEL}"),
        ):
            if isinstance(batch.get(name), Tensor) and batch[name].shape == sequences.shape:
                return _of_key(name, counted, find), unit
    return lambda batch: _positions(find(batch)), "positions of its sequences"


def _is_sequences(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.int32, torch.int64)


def _of_key(name: str, count: Callable[[Tensor], Any], find: Callable[[Any], Any]) -> Count:
    """Count in the tensor `name`, or all positions of a batch that lacks it."""
    return lambda batch: _positions(find(batch)) if batch.get(name) is None else count(batch[name])


def _positions(sequences: Tensor | None) -> int:
    return 0 if sequences is None else sequences.numel()


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
