"""The sources of a finite set's rows: tensors in the memory of host or device, or items read one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self

import torch
from torch import Tensor


class Rows(Protocol):
    """A set whose samples are numbered from 0."""

    @property
    def device(self) -> torch.device:
        """The device that row numbers must be on, and that batches will be on."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return the samples with these numbers (int64, (n,)) as tensors (n, ...)."""

    def subset(self, rows: Tensor) -> Self:
        """Return the set of these rows, in this order."""


class Tensors:
    """A set in memory: tensors (samples, ...) of equal length."""

    def __init__(self, *tensors: Tensor) -> None:
        """All on one device."""
        self.tensors = tensors

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.tensors[0].device

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.tensors[0])

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of these rows."""
        return tuple(tensor[rows] for tensor in self.tensors)

    def subset(self, rows: Tensor) -> Tensors:
        """Return a set with copies of these rows."""
        return Tensors(*self.take(rows))

    def to(self, device: torch.device) -> Tensors:
        """Return the set on `device`: itself if it is there."""
        return Tensors(*(tensor.to(device) for tensor in self.tensors))


class Excerpt(Tensors):
    """Some rows of a set in memory, which is not copied: batches are taken out of the whole."""

    def __init__(self, whole: Tensors, rows: Tensor) -> None:
        """`rows` (int64, (n,)) are the numbers of the part's rows, in order."""
        super().__init__(*whole.tensors)
        self._rows = rows.to(whole.device)

    def __len__(self) -> int:
        """Return the number of rows in this part."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Return copies of these rows of the part."""
        return super().take(self._rows[rows])

    def subset(self, rows: Tensor) -> Excerpt:
        """Return the part of these rows of the part; nothing is copied."""
        return Excerpt(Tensors(*self.tensors), self._rows[rows.to(self._rows.device)])

    def to(self, device: torch.device) -> Excerpt:
        """Return the part, of the whole on `device`."""
        return Excerpt(super().to(device), self._rows)


class Items:
    """A set that is read item by item, such as images in files: `convert` makes each item a tuple of tensors."""

    def __init__(
        self, items: Sequence[Any] | Any, convert: Callable[[Any], tuple[Tensor, ...]], rows: Tensor | None = None
    ) -> None:
        """`items` has `len()` and `[number]`; `rows` are the numbers of those that belong to the set (None: all)."""
        self._items, self._convert = items, convert
        self._rows = torch.arange(len(items)) if rows is None else rows

    @property
    def device(self) -> torch.device:
        """The host's memory."""
        return torch.device("cpu")

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._rows)

    def take(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Read, convert and stack these rows."""
        samples = [self._convert(self._items[number]) for number in self._rows[rows].tolist()]
        return tuple(torch.stack(parts) for parts in zip(*samples, strict=True))

    def subset(self, rows: Tensor) -> Items:
        """Return the set of these rows; nothing is read."""
        return Items(self._items, self._convert, self._rows[rows])

    def in_memory(self) -> Tensors:
        """Read everything, once."""
        return Tensors(*self.take(torch.arange(len(self))))
