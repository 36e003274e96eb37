"""Infers the number of samples from a batch's structure, to count the samples processed rather than those requested.

A batch may consist of columns (inputs, targets), which share their first dimension, or be a list of samples. If both
interpretations are possible, the loader must declare the batch size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

Path = tuple[Any, ...]
"""The path to a part of a batch: keys, indices or names, outermost first."""


def possible_sizes(batch: Any, lone: bool = False) -> dict[int, tuple[Path, ...]]:
    """Return the possible numbers of samples in `batch`, each mapped to the paths of the parts that have this length.

    The length of a tensor (samples, ...) is the size of its first dimension; that of columns is their common length. A
    list of similar parts may also be a list of samples; if `lone` is set, so may a list with a single part. Returns an
    empty result if no part has a length, or if columns differ in length.
    """
    shape = _shape(batch)
    if shape is not None:
        return {int(shape[0]): ((),)} if len(shape) else {}
    columns = _columns(batch)
    if not columns:
        return {}
    if _is_plain(batch) and all(isinstance(part, str | int | float) for part in columns.values()):
        return {len(columns): ((),)}
    sizes_by_column = {key: sizes for key, part in columns.items() if (sizes := possible_sizes(part, lone))}
    key, first = next(iter(sizes_by_column.items()), (None, {}))
    common = [count for count in first if all(count in sizes for sizes in sizes_by_column.values())]
    sizes = {count: tuple((key, *path) for path in first[count]) for count in common}
    is_list = _is_plain(batch) and len({_kind(part) for part in columns.values()}) == 1
    if is_list and (len(columns) > 1 or lone):
        # unless the parts are tensors, a length that happens to equal the list's is just a dimension of a sample
        are_tensors = all(_shape(part) is not None for part in columns.values())
        sizes[len(columns)] = ((), *(sizes.get(len(columns), ()) if are_tensors else ()))
    return sizes


def lengths(batch: Any) -> Iterator[tuple[Path, int]]:
    """Yield the path and length of every part of `batch` that has a length, outermost first."""
    level: list[tuple[Path, Any]] = [((), batch)]
    while level:
        yield from ((path, count) for path, part in level if (count := _length(part)) is not None)
        level = [((*path, key), part) for path, outer in level for key, part in _columns(outer).items()]


def length_at(batch: Any, path: Path) -> int:
    """Return the length of the part at `path`. Raises LookupError like `lengths_at`."""
    return lengths_at(batch, path)[0]


def lengths_at(batch: Any, path: Path) -> tuple[int, ...]:
    """Return the shape of the tensor, or the length of the list, at `path`.

    If the samples in a tensor differ in size, only their number is returned. Raises LookupError if there is no such
    part.
    """
    for key in path:
        columns = _columns(batch)
        if key not in columns:
            raise LookupError(key)
        batch = columns[key]
    count = _length(batch)
    if count is None:
        raise LookupError(path)
    shape = _shape(batch)
    return (count,) if shape is None or None in shape else tuple(map(int, shape))


def declared_batch_size(loader: Any) -> int | None:
    """Return the batch size declared by a loader, its batch sampler or its dataset, or None."""
    sources = (loader, getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None))
    sizes = (getattr(source, "batch_size", None) for source in sources)
    return next((size for size in sizes if isinstance(size, int) and not isinstance(size, bool)), None)


def sizes_in_a_pass(loader: Any, size: int) -> set[int] | None:
    """Return the batch sizes that occur in one pass: `size`, and that of an incomplete last batch; None if unknown.

    The sizes are known only for torch's own BatchSampler over a sampler with a length.
    """
    from torch.utils.data import BatchSampler

    sampler = getattr(loader, "batch_sampler", None)
    if type(sampler) is not BatchSampler:
        return None
    try:
        rest = len(sampler.sampler) % size  # type: ignore[arg-type]
    except TypeError:
        return None
    return {size} if sampler.drop_last or not rest else {size, rest}


def _columns(batch: Any) -> dict[Any, Any]:
    """Return the parts of a mapping, dataclass, tuple or list keyed by key, name or index; empty for anything else."""
    if isinstance(batch, Mapping):
        return dict(batch)
    if is_packed(batch):
        return {}
    if is_dataclass(batch) and not isinstance(batch, type):
        return {field.name: getattr(batch, field.name) for field in fields(batch)}
    return dict(enumerate(batch)) if isinstance(batch, list | tuple) else {}


def is_packed(batch: Any) -> bool:
    """Return whether `batch` is torch's `PackedSequence`, a tuple that does not consist of columns."""
    return isinstance(batch, tuple) and getattr(batch, "_fields", ())[:2] == ("data", "batch_sizes")


def _shape(part: Any) -> tuple[Any, ...] | None:
    """Return the shape of a tensor, array or packed sequence, samples first; None for anything else.

    Other dimensions are None if samples differ in size.
    """
    if is_packed(part):
        sizes = part.batch_sizes  # the first time step includes all samples
        return (int(sizes[0]) if len(sizes) else 0, None)
    if getattr(part, "is_nested", False) is True:
        return (int(part.size(0)), *[None] * (part.dim() - 1))
    shape = getattr(part, "shape", None)
    return None if shape is None else tuple(shape)


def _length(part: Any) -> int | None:
    shape = _shape(part)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(part) if _is_plain(part) and part else None


def _is_plain(batch: Any) -> bool:
    """Return whether `batch` is a list or a tuple, but not a named tuple."""
    return isinstance(batch, list | tuple) and not hasattr(batch, "_fields")


def _kind(part: Any) -> tuple[Any, ...]:
    """Return the properties that a dataset's samples share: type, dtype, number of dimensions, keys, kinds of parts."""
    shape = _shape(part)
    if shape is not None:
        return (type(part), str(getattr(part, "dtype", None)), len(shape))
    inner = frozenset(part) if isinstance(part, Mapping) else frozenset(map(_kind, _columns(part).values()))
    return (type(part), inner)
