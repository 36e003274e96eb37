"""The number of samples in a batch, counted by looking at it: processed ones count, not those that were asked for.

A batch may be read as columns (inputs, targets), which share their first dimension, or as a list of samples. Where both
are possible, whoever made it has to say how many samples it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

Path = tuple[Any, ...]
"""The place of something in a batch: keys, numbers or names, from the outside in."""


def possible_sizes(batch: Any, lone: bool = False) -> dict[int, tuple[Path, ...]]:
    """Return each number of samples that `batch` may hold as a whole, with the places that show it.

    A tensor (samples, ...) tells its first dimension. Columns tell what all of them tell. A list of parts that are
    alike may also be one of samples; with `lone` so may a list of one. Empty where nothing tells, or columns disagree.
    """
    shape = _shape(batch)
    if shape is not None:
        return {int(shape[0]): ((),)} if len(shape) else {}
    columns = _columns(batch)
    if not columns:
        return {}
    if _is_plain(batch) and all(isinstance(part, str | int | float) for part in columns.values()):
        return {len(columns): ((),)}
    told = {key: found for key, part in columns.items() if (found := possible_sizes(part, lone))}
    key, first = next(iter(told.items()), (None, {}))
    counts = [count for count in first if all(count in found for found in told.values())]
    shared = {count: tuple((key, *path) for path in first[count]) for count in counts}
    if _is_plain(batch) and _alike(list(columns.values())) and (len(columns) > 1 or lone):
        # A first dimension of a sample that happens to be as long as the list is no second witness.
        as_tensors = all(_shape(part) is not None for part in columns.values())
        shared[len(columns)] = ((), *(shared.get(len(columns), ()) if as_tensors else ()))
    return shared


def lengths(batch: Any) -> Iterator[tuple[Path, int]]:
    """Yield every place in `batch` that has a length, with it; what lies further out comes first."""
    level: list[tuple[Path, Any]] = [((), batch)]
    while level:
        yield from ((path, count) for path, part in level if (count := _length(part)) is not None)
        level = [((*path, key), part) for path, outer in level for key, part in _columns(outer).items()]


def length_at(batch: Any, path: Path) -> int:
    """Return the length of what lies at `path`. Raises LookupError where nothing with a length does."""
    return lengths_at(batch, path)[0]


def lengths_at(batch: Any, path: Path) -> tuple[int, ...]:
    """Return the size of each dimension of the tensor at `path`, or the length of the list there.

    Of a tensor whose samples have sizes of their own it is their number alone.
    Raises LookupError where nothing with a length lies there.
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
    """Return the samples of a whole batch, as its loader, batch sampler or data set states it; None where none does."""
    sources = (loader, getattr(loader, "batch_sampler", None), getattr(loader, "dataset", None))
    stated = (getattr(source, "batch_size", None) for source in sources)
    return next((size for size in stated if isinstance(size, int) and not isinstance(size, bool)), None)


def sizes_in_a_pass(loader: Any, size: int) -> set[int] | None:
    """Return the sizes that batches have in one pass: `size`, and what is left for the last one; None if unknown.

    Only torch's own batch sampler, over a sampler with a length, is known to cut like that.
    """
    from torch.utils.data import BatchSampler

    cut = getattr(loader, "batch_sampler", None)
    if type(cut) is not BatchSampler:
        return None
    try:
        left = len(cut.sampler) % size  # type: ignore[arg-type]
    except TypeError:
        return None
    return {size} if cut.drop_last or not left else {size, left}


def _columns(batch: Any) -> dict[Any, Any]:
    """Return the parts of a mapping, dataclass, tuple or list by key, name or number; none of anything else."""
    if isinstance(batch, Mapping):
        return dict(batch)
    if is_packed(batch):
        return {}
    if is_dataclass(batch) and not isinstance(batch, type):
        return {field.name: getattr(batch, field.name) for field in fields(batch)}
    return dict(enumerate(batch)) if isinstance(batch, list | tuple) else {}


def is_packed(batch: Any) -> bool:
    """Return whether `batch` is a `PackedSequence` of torch's, which is a tuple, but holds no columns."""
    return isinstance(batch, tuple) and getattr(batch, "_fields", ())[:2] == ("data", "batch_sizes")


def _shape(part: Any) -> tuple[Any, ...] | None:
    """Return the shape of a tensor, an array or a packed sequence, samples first; None for anything else.

    What lies behind the samples is unknown (None) where each sample has a size of its own.
    """
    if is_packed(part):
        sizes = part.batch_sizes  # of the first time step, at which every sample is there
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
    """Return whether `batch` is a list or tuple whose parts have no names."""
    return isinstance(batch, list | tuple) and not hasattr(batch, "_fields")


def _alike(parts: list[Any]) -> bool:
    return len({_kind(part) for part in parts}) == 1


def _kind(part: Any) -> tuple[Any, ...]:
    """Return what samples of one data set have in common: type, number format, dimensions, keys, kinds of parts."""
    shape = _shape(part)
    if shape is not None:
        return (type(part), str(getattr(part, "dtype", None)), len(shape))
    inner = frozenset(part) if isinstance(part, Mapping) else frozenset(map(_kind, _columns(part).values()))
    return (type(part), inner)
