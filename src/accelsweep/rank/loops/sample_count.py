"""The number of samples in each batch of a loader. Every rate follows from it, so what is ambiguous is refused.

The module's own `samples(batch)` counts where there is one. Else the loader states how many samples a whole batch has,
and the first batch shows where in it that number stands. A loader that states nothing must give batches that can be
read in one way only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from accelsweep.base.errors import InputError
from accelsweep.measure.samples import Path, length_at, lengths_at, places, readings, sizes_in_a_pass, stated_size

_REMEDY = "define samples(self, batch) in the LightningModule, which returns their number"


MOST_WITNESSES = 3
"""Parts of a batch that are asked where its first dimension is in question; the outermost ones tell the most."""


class SampleCount:
    """Counts the samples of one loader's batches, the first of which decides how."""

    def __init__(self, batch_size: int) -> None:
        """`batch_size` is what the first batch must hold."""
        self._batch_size = batch_size
        self._count: Callable[[Any], int] | None = None

    def of(self, batch: Any, loader: Any, module: Any) -> int:
        """Return the samples in `batch`, which `loader` gave to `module`.

        Raises InputError where that cannot be told, or where the first batch shows that the data ignores `batch_size`.
        """
        if self._count is not None:
            return self._count(batch)
        count = self._count = _own(module) or _by_place(batch, loader)
        if (samples := count(batch)) != self._batch_size:
            raise InputError(
                f"the data's first batch holds {samples} samples although batch_size={self._batch_size}: "
                "give the data module's batch_size to its DataLoader"
            )
        return samples


def _own(module: Any) -> Callable[[Any], int] | None:
    """Return the module's `samples(self, batch)`; a method of that name with other arguments is something else."""
    own = getattr(module, "samples", None)
    if not inspect.ismethod(own) or list(inspect.signature(own).parameters) != ["batch"]:
        return None

    def count(batch: Any) -> int:
        samples = own(batch)
        if not isinstance(samples, int) or samples < 0:
            raise InputError(f"{type(module).__name__}.samples(batch) returned {samples!r}, not a number of samples")
        return samples

    return count


def _by_place(batch: Any, loader: Any) -> Callable[[Any], int]:
    prefix, first, loader = _first_loaders(batch, loader)
    stated = stated_size(loader)
    found = _only(first) if stated is None else _stated(first, stated)
    at = [(*prefix, *path) for path in found]
    dimensions = _Dimensions(batch, at, None if stated is None else sizes_in_a_pass(loader, stated))

    def count(batch: Any) -> int:
        try:
            return dimensions.samples(batch)
        except LookupError:
            raise InputError(f"a later batch has another form than the first one: {_REMEDY}") from None

    return count


class _Dimensions:
    """The dimensions that may be the samples': those of a tensor which are as long as a whole batch.

    The first dimension is the usual one. A batch (time, samples, ...) that has as many moments as samples looks the
    same until its last one is short. Something of one dimension beside it, such as targets or lengths, is a witness.
    """

    def __init__(self, batch: Any, paths: Sequence[Path], sizes: set[int] | None) -> None:
        """`paths` lead to what holds the samples; `sizes` are those that batches can have, None where nobody knows."""
        self._sizes, self._paths = sizes, paths
        self._size = min(length_at(batch, path) for path in paths)
        shapes = [lengths_at(batch, path) for path in paths]
        self._open = [{number for number, size in enumerate(shape) if size == self._size} for shape in shapes]
        self._plain = all(dimensions == {0} for dimensions in self._open)
        witnesses = (path for path, _ in places(batch) if lengths_at(batch, path) == (self._size,))
        self._witnesses = list(islice(witnesses, MOST_WITNESSES))

    def samples(self, batch: Any) -> int:
        """Return the samples in `batch`. Raises InputError where two dimensions may be theirs and disagree."""
        if self._plain:
            return min(length_at(batch, path) for path in self._paths)
        shapes = [lengths_at(batch, path) for path in self._paths]
        for dimensions, shape in zip(self._open, shapes, strict=True):
            if len(dimensions) > 1:
                dimensions -= {number for number in dimensions if self._impossible(number, shape)}
        seen = [
            {shape[number] for number in dimensions if number < len(shape)} or {shape[0]}
            for dimensions, shape in zip(self._open, shapes, strict=True)
        ]
        together = set.intersection(*seen)
        if len(together) == 1:
            return together.pop()
        if not together:  # a list of tensors, each as long as the list was
            return min(map(min, seen))
        if len(told := together & {length_at(batch, path) for path in self._witnesses}) == 1:
            return told.pop()
        usual = min(shape[0] for shape in shapes)
        if self._sizes is None and usual < self._size:
            return usual
        if self._sizes is not None and together <= self._sizes:
            return min(together)
        lengths = " or ".join(map(str, sorted(together)))
        raise InputError(f"a batch of the shape {shapes[0]} may hold {lengths} samples: {_REMEDY}")

    def _impossible(self, number: int, shape: Sequence[int]) -> bool:
        """Return whether this dimension has a size that no batch can have, so that it is another one."""
        if number >= len(shape) or shape[number] > self._size:
            return True
        return number > 0 and self._sizes is not None and shape[number] not in self._sizes


def _stated(batch: Any, size: int) -> tuple[Path, ...]:
    """Return where in `batch` the `size` that its loader states is to be seen."""
    if places_of_all := readings(batch, lone=size == 1).get(size):
        return places_of_all
    somewhere = [path for path, count in places(batch) if count == size]
    if not somewhere:
        seen = _in_words(batch)
        raise InputError(f"{_unclear(batch)}: its loader states {size}, {seen}: {_REMEDY}")
    return (somewhere[0],)


def _only(batch: Any) -> tuple[Path, ...]:
    """Return where in `batch` the one number stands that it can be read as."""
    found = readings(batch)
    listed = isinstance(batch, list | tuple) and any(
        () in paths and hasattr(batch[0], "ndim") for paths in found.values()
    )
    if len(found) != 1 or listed:  # a list of tensors may be columns that disagree, too
        remedy = "put a tensor (samples, ...) into it, or " if not found else ""
        raise InputError(f"{_unclear(batch)}: its loader states no batch_size, {_in_words(batch)}: {remedy}{_REMEDY}")
    return next(iter(found.values()))


def _unclear(batch: Any) -> str:
    return f"cannot tell how many samples a {type(batch).__name__} batch holds"


def _in_words(batch: Any) -> str:
    counts = sorted(readings(batch))
    if counts:
        return f"and it looks like {' or '.join(map(str, counts))}"
    lengths = list(dict.fromkeys(count for _, count in places(batch)))
    return (
        f"and its parts have the lengths {', '.join(map(str, lengths[:5]))}" if lengths else "and nothing in it tells"
    )


def _first_loaders(batch: Any, loader: Any) -> tuple[Path, Any, Any]:
    """Return the path to the first loader's part of `batch`, that part and that loader, where there are several."""
    path: Path = ()
    while isinstance(loader, Mapping | list | tuple) and loader:
        key = next(iter(loader)) if isinstance(loader, Mapping) else 0
        try:
            batch, loader, path = batch[key], loader[key], (*path, key)
        except (LookupError, TypeError):  # loaders that take turns
            return path, batch, None
    return path, batch, loader
