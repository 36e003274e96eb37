"""How many samples a batch holds, by looking at it: what was really processed is counted, not what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def samples_in(batch: Any) -> int | None:
    """Return the number of samples in `batch`: the length of the first tensor found in it, or of a list of strings.

    Tensors have shape (samples, ...); tuples, lists, mappings and dataclasses are searched in order. None if nothing in
    the batch tells.
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) > 0 else None
    if isinstance(batch, Mapping):
        return _first(batch.values())
    if is_dataclass(batch):
        return _first(getattr(batch, field.name) for field in fields(batch))
    if isinstance(batch, list | tuple):
        if batch and all(isinstance(item, str | int | float) for item in batch):
            return len(batch)
        return _first(batch)
    return None


def _first(parts: Any) -> int | None:
    for part in parts:
        count = samples_in(part)
        if count is not None:
            return count
    return None
