"""Single samples out of a loader's batches, and batches out of single samples: what a server is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from torch import Tensor
from torch.utils.data import default_collate

from accelsweep.base.errors import Unsupported
from accelsweep.measure.samples import is_packed


def samples_of(batches: Iterator[Any], size: int, count: int) -> list[Any]:
    """Return the first `count` samples of `batches`, each of which holds `size` samples along its first dimension.

    Raises Unsupported for batches that cannot be taken apart.
    """
    return list(islice(chain.from_iterable(taken_apart(batch, size) for batch in batches), count))


def taken_apart(batch: Any, size: int) -> list[Any]:
    """Return the `size` samples of a batch of tensors, in tuples, lists or mappings. Raises Unsupported for others."""
    nested = isinstance(batch, Tensor) and batch.is_nested
    if isinstance(batch, Tensor) and not nested and batch.shape[:1] == (size,):
        return list(batch)
    if isinstance(batch, Mapping):
        parts = {key: taken_apart(value, size) for key, value in batch.items()}
        return [{key: values[number] for key, values in parts.items()} for number in range(size)]
    if isinstance(batch, list | tuple) and batch and not is_packed(batch):
        return [list(sample) for sample in zip(*(taken_apart(part, size) for part in batch), strict=True)]
    shape = f" of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) and not nested else ""
    raise Unsupported(
        f"measure.scenario=server asks for single samples, and a batch of {size} holds a {type(batch).__name__}{shape}"
        ", which cannot be taken apart. Give batches of tensors whose first dimension counts samples"
    )


def together(samples: Sequence[Any]) -> Any:
    """Return the samples as one batch, with `torch.utils.data.default_collate`."""
    return default_collate(list(samples))
