"""Count the samples in a batch, in a pass over a loader, and in an optimiser step.

Every rate is based on the number of samples in a batch, so an ambiguous batch is rejected. The module's
`samples(batch)` is used if it is defined. Otherwise the first batch reveals which dimension matches the loader's batch
size. If the loader does not declare a batch size, its batches must be unambiguous.

Passes and optimiser steps are counted as they happen, because the config does not determine how many batches go into an
optimiser step: Lightning steps at the end of every epoch regardless of `accumulate_grad_batches`, a callback may change
that number from epoch to epoch, and under manual optimisation the module alone determines it.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accelsweep.errors import InputError
from accelsweep.measure.batch_size import (
    Path,
    declared_batch_size,
    length_at,
    lengths,
    lengths_at,
    possible_sizes,
    sizes_in_a_pass,
)
from accelsweep.workloads.training_stream import RepeatedDataset

_REMEDY = (
    "define samples(self, batch) in the LightningModule to return the number of samples, or, for a script of your own, "
    "set samples_per_step in accelsweep.yaml"
)

RARE_STEPS = 0.05
"""The share of optimiser steps that may differ in size, to allow for the shorter last step of a long epoch."""

MAX_WITNESSES = 3
"""How many parts of a batch are checked to resolve an ambiguous dimension.

The outermost parts, which are the most reliable, are checked first.
"""


class SampleCounter:
    """Counts the samples in one loader's batches, using a method chosen from the first batch."""

    def __init__(self, batch_size: int | None, ranks: int = 1, stated: int | None = None) -> None:
        """`batch_size` is the number of samples that the first batch must contain on each of the `ranks`.

        If it is None, any first batch is accepted and sets it. If `stated` is given, every batch is taken to
        contain that many samples.
        """
        self._batch_size, self._ranks = batch_size, ranks
        self._count: Callable[[Any], int] | None = None if stated is None else lambda _: stated
        self._uniform = True
        self._in_pass = 0
        self._passes: list[int] = []

    def count(self, batch: Any, loader: Any, module: Any) -> int:
        """Return the number of samples in `batch`, which `loader` passed to `module`.

        Raises InputError if the sample dimension is ambiguous, or if the size of the first batch shows that the data
        ignores `batch_size`.
        """
        first = self._count is None
        if self._count is None:
            self._count = _module_counter(module) or _shape_counter(batch, loader, self._ranks)
        samples = self._count(batch)
        if self._batch_size is None:
            self._batch_size = samples
        if first and samples != self._batch_size:
            raise InputError(
                f"the data's first batch contains {samples} samples, but batch_size={self._batch_size}: "
                + _size_remedy(samples, self._batch_size, self._ranks, loader)
            )
        self._uniform = self._uniform and samples == self._batch_size
        self._in_pass += samples
        return samples

    def pass_ended(self, complete: bool) -> None:
        """Record that a pass over the loader ended or was cut short."""
        if complete:
            self._passes.append(self._in_pass)
        self._in_pass = 0

    def epoch_samples(self, data: Any, loader: Any, batches: float | None = None) -> int | None:
        """Return the number of samples in one pass over the training data, across all ranks; None if unknown.

        It is taken from the first available of the data module's `epoch_samples`, a completed pass, and the loader's
        length. `batches` is the number of batches in a pass if the loader does not determine it.
        """
        stated = getattr(data, "epoch_samples", None)
        if stated is not None:
            return int(stated)
        first = _first_loader(loader)
        dataset = getattr(first, "dataset", None)
        if isinstance(dataset, RepeatedDataset):  # one pass over it repeats the underlying data several times
            return len(dataset.dataset)
        if self._passes:
            return round(sum(self._passes) / len(self._passes)) * self._ranks
        if isinstance(dataset, IterableDataset) and self._ranks > 1:
            return None  # its length may be that of one rank's share or of the whole data set
        samples, length = self._loader_samples(first), length_of(first)
        if batches is None or math.isinf(batches) or length is None or batches == length:
            return None if samples is None else samples * self._ranks
        rounds, rest = divmod(int(batches), length)  # cut short by a limit, or repeated to match a longer loader
        if self._batch_size is None or (rounds and samples is None):
            return None
        return (rounds * (samples or 0) + rest * self._batch_size) * self._ranks

    def _loader_samples(self, loader: Any) -> int | None:
        """Return the number of samples that this rank gets from a complete pass over `loader`; None if unknown."""
        if not self._uniform or self._batch_size is None:
            return None
        if isinstance(loader, DataLoader) and loader.batch_size == self._batch_size:
            rows = length_of(loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler)
            if rows is None:
                return None
            return rows - rows % loader.batch_size if loader.drop_last else rows
        batches = length_of(loader)
        sampler = getattr(loader, "batch_sampler", None)
        if type(sampler) is BatchSampler and sampler.batch_size == self._batch_size:
            rows = length_of(sampler.sampler)
            if rows is not None:
                return rows - rows % sampler.batch_size if sampler.drop_last else rows
        return None if batches is None else batches * self._batch_size


class OptimizerSteps:
    """Counts the batches whose gradients contribute to each optimiser step. Batch numbers are zero-based."""

    def __init__(self) -> None:
        """Counting only starts with `watch`."""
        self._batch, self._most = -1, 1
        self._pending: dict[torch.optim.Optimizer, set[int]] = {}
        self._last_step: dict[torch.optim.Optimizer, int] = {}
        self._steps: dict[torch.optim.Optimizer, list[tuple[int, int]]] = {}

    def watch(self, optimizers: Sequence[torch.optim.Optimizer], accumulate: int, wrappers: Sequence[Any] = ()) -> None:
        """Start counting. `accumulate` is the number of batches per step according to the config.

        `wrappers` are the LightningOptimizers of a module with manual optimisation, whose gradients and steps are
        observed directly. Otherwise the Trainer reports gradients and steps.
        """
        self._batch, self._most = -1, accumulate
        self._pending = {optimizer: set() for optimizer in optimizers}
        self._steps = {optimizer: [] for optimizer in optimizers}
        self._last_step = dict.fromkeys(optimizers, -1)
        for optimizer, wrapper in zip(optimizers, wrappers, strict=False):
            self._observe(optimizer, wrapper, self._pending[optimizer])

    def _observe(self, optimizer: torch.optim.Optimizer, wrapper: Any, pending: set[int]) -> None:
        """Add hooks to the steps of `optimizer` and to the gradients of its first and last parameter.

        Gradients cleared by `zero_grad` are not counted, because another optimiser's loss may also produce gradients in
        these parameters.
        """
        optimizer.register_step_post_hook(lambda stepped, *_: self.stepped(stepped))
        parameters = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
        for parameter in {id(each): each for each in (*parameters[:1], *parameters[-1:])}.values():
            parameter.register_post_accumulate_grad_hook(lambda _: pending.add(self._batch))

        def dropping(zero_grad: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(zero_grad)
            def zero_and_drop(*arguments: Any, **options: Any) -> None:
                zero_grad(*arguments, **options)
                pending.clear()

            return zero_and_drop

        owners: tuple[Any, ...] = (optimizer, wrapper)
        for owner in owners:
            owner.zero_grad = dropping(owner.zero_grad)

    def batch_begins(self, number: int) -> None:
        """Record that training on batch `number` begins."""
        self._batch = number

    def gradients_added(self) -> None:
        """Record that the current batch's gradients were accumulated (automatic optimisation)."""
        for pending in self._pending.values():
            pending.add(self._batch)

    def gradients_dropped(self) -> None:
        """Record that the accumulated gradients were set to zero (automatic optimisation)."""
        for pending in self._pending.values():
            pending.clear()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Record a step of `optimizer`. A step reported twice without new gradients is counted only once."""
        pending = self._pending.get(optimizer)
        if pending is None or (not pending and self._last_step[optimizer] == self._batch):
            return
        batches = len(pending) or self._batch - self._last_step[optimizer]
        self._steps[optimizer].append((self._batch, batches))
        self._most = max(self._most, batches)
        self._last_step[optimizer] = self._batch
        pending.clear()

    def restart(self) -> None:
        """Forget all steps and gradients so far, and count batches from 0 again."""
        self._batch = -1
        for optimizer, pending in self._pending.items():
            pending.clear()
            self._steps[optimizer], self._last_step[optimizer] = [], -1

    @property
    def unfinished(self) -> bool:
        """Whether gradients are pending from fewer batches than in the largest step so far."""
        return any(0 < len(pending) < self._most for pending in self._pending.values())

    def batch_counts(self, since: int = 0) -> tuple[Counter[int], ...]:
        """Return, for each optimiser that has stepped since batch `since`, the number of steps per batch count."""
        counts = (Counter(count for batch, count in steps if batch >= since) for steps in self._steps.values())
        return tuple(counter for counter in counts if counter)


def usual_batches_per_step(counts: Iterable[Counter[int]]) -> int | None:
    """Return the number of batches used by nearly all optimiser steps; None if steps differ or there were none."""
    usual = set[int | None]()
    for counter in counts:
        batches, steps = counter.most_common(1)[0]
        usual.add(batches if steps >= (1.0 - RARE_STEPS) * counter.total() else None)
    return usual.pop() if len(usual) == 1 else None


def _size_remedy(samples: int, batch_size: int, ranks: int, loader: Any) -> str:
    """Describe the likely reason why the first batch does not contain `batch_size` samples, and the remedy."""
    first = _first_loader(loader)
    if first is not loader:
        name = next(iter(loader)) if isinstance(loader, Mapping) else 0
        return (
            f"samples are counted in the first of several training loaders, {name!r}. Put the loader that batch_size "
            "is for first, or define samples(self, batch) in the LightningModule"
        )
    rows = rows_of(first)
    if rows is not None and samples < batch_size and samples == -(-rows // ranks):
        share = "" if ranks == 1 else f", {samples} for each of {ranks} ranks"
        return f"the data set has {rows} rows{share}. Lower batch_size, or use a larger data set"
    if ranks > 1 and samples == batch_size // ranks:
        return (
            f"that is {batch_size} / {ranks} ranks. batch_size is the number of samples per rank, but the data "
            f"divides it by world_size: add +data.batch_size={batch_size * ranks}, which it divides into {batch_size} "
            "per rank, or remove the division from its code"
        )
    if declared_batch_size(first) == samples:
        return (
            f"its loader uses its own batch size. Measure it with batch_size={samples}, or pass the data module's "
            "batch_size to its DataLoader"
        )
    return "pass the data module's batch_size to its DataLoader"


def no_batch_message(loader: Any) -> str:
    """Return the error message for a training loader that yielded no batch."""
    first = _first_loader(loader)
    rows, size = rows_of(first), declared_batch_size(first)
    cause = "" if rows is None else f": the data set has {rows} row{'' if rows == 1 else 's'}"
    if rows and size is not None and getattr(first, "drop_last", False):
        cause += f", and drop_last=True drops a batch of fewer than {size}"
    return f"the training loader yielded no batch{cause}: lower batch_size, or keep short batches"


def rows_of(loader: Any) -> int | None:
    """Return the number of rows in a loader's dataset; None if they cannot be counted."""
    dataset = getattr(loader, "dataset", None)
    return None if dataset is None or isinstance(dataset, IterableDataset) else length_of(dataset)


def length_of(sized: Any) -> int | None:
    """Return the length of a dataset, sampler or loader; None if it does not define one."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def may_be_endless(loader: Any) -> bool:
    """Return whether a loader has no length and its dataset is not marked `finite`.

    Iterable datasets set this attribute instead of a length, because Lightning warns about a length.
    """
    return length_of(loader) is None and not getattr(getattr(loader, "dataset", None), "finite", False)


def _first_loader(loader: Any) -> Any:
    """Return the loader whose samples are counted: the first, if there are several."""
    while isinstance(loader, Mapping | list | tuple) and loader:
        loader = next(iter(loader.values())) if isinstance(loader, Mapping) else loader[0]
    return loader


def _module_counter(module: Any) -> Callable[[Any], int] | None:
    """Return the module's `samples(self, batch)`, or None; a method with different arguments is ignored."""
    method = getattr(module, "samples", None)
    if not inspect.ismethod(method) or list(inspect.signature(method).parameters) != ["batch"]:
        return None

    def count(batch: Any) -> int:
        samples = method(batch)
        if not isinstance(samples, int) or samples < 0:
            raise InputError(f"{type(module).__name__}.samples(batch) returned {samples!r}, not a number of samples")
        return samples

    return count


def _shape_counter(batch: Any, loader: Any, ranks: int) -> Callable[[Any], int]:
    """Return a function that counts samples along the dimensions identified in the first batch, `batch`."""
    prefix, part, loader = _first_part(batch, loader)
    stated, rows = declared_batch_size(loader), rows_of(loader)
    if stated is not None and rows:
        stated = min(stated, -(-rows // ranks))  # a data set smaller than a batch yields one short batch
    paths = _unambiguous_paths(part) if stated is None else _paths_of_size(part, stated)
    sizes = None if stated is None else sizes_in_a_pass(loader, stated)
    dimensions = _SampleDimensions(batch, [(*prefix, *path) for path in paths], sizes)

    def count(batch: Any) -> int:
        try:
            return dimensions.samples(batch)
        except LookupError:
            raise InputError(f"a later batch has a different structure from the first one: {_REMEDY}") from None

    return count


class _SampleDimensions:
    """The candidate sample dimensions: those whose length equals the size of the first batch.

    Usually only the first dimension qualifies. A batch of shape (time, samples, ...) with as many time steps as samples
    is ambiguous until a short batch arrives. One-dimensional parts, such as targets, resolve the ambiguity.
    """

    def __init__(self, batch: Any, paths: Sequence[Path], sizes: set[int] | None) -> None:
        """`paths` lead to the parts that contain samples; `sizes` is None if the possible batch sizes are unknown."""
        self._sizes, self._paths = sizes, paths
        self._size = min(length_at(batch, path) for path in paths)
        shapes = [lengths_at(batch, path) for path in paths]
        self._candidates = [{number for number, size in enumerate(shape) if size == self._size} for shape in shapes]
        self._unambiguous = all(dimensions == {0} for dimensions in self._candidates)
        witnesses = (path for path, _ in lengths(batch) if lengths_at(batch, path) == (self._size,))
        self._witnesses = list(islice(witnesses, MAX_WITNESSES))

    def samples(self, batch: Any) -> int:
        """Return the number of samples in `batch`. Raises InputError if candidate dimensions disagree."""
        if self._unambiguous:
            return min(length_at(batch, path) for path in self._paths)
        shapes = [lengths_at(batch, path) for path in self._paths]
        for dimensions, shape in zip(self._candidates, shapes, strict=True):
            if len(dimensions) > 1:
                dimensions -= {number for number in dimensions if self._is_impossible(number, shape)}
        counts = [
            {shape[number] for number in dimensions if number < len(shape)} or {shape[0]}
            for dimensions, shape in zip(self._candidates, shapes, strict=True)
        ]
        common = set.intersection(*counts)
        if len(common) == 1:
            return common.pop()
        if not common:  # the first batch contained a list of tensors, each as long as the list itself
            return min(map(min, counts))
        if len(confirmed := common & {length_at(batch, path) for path in self._witnesses}) == 1:
            return confirmed.pop()
        first = min(shape[0] for shape in shapes)
        if self._sizes is None and first < self._size:
            return first
        if self._sizes is not None and common <= self._sizes:
            return min(common)
        candidates = " or ".join(map(str, sorted(common)))
        raise InputError(f"a batch of shape {shapes[0]} may contain {candidates} samples: {_REMEDY}")

    def _is_impossible(self, number: int, shape: Sequence[int]) -> bool:
        """Return whether the size of dimension `number` rules it out as the sample dimension."""
        if number >= len(shape) or shape[number] > self._size:
            return True
        return number > 0 and self._sizes is not None and shape[number] not in self._sizes


def _paths_of_size(batch: Any, size: int) -> tuple[Path, ...]:
    """Return the paths to the parts of `batch` whose size is the `size` declared by its loader."""
    if paths := possible_sizes(batch, lone=size == 1).get(size):
        return paths
    path = next((path for path, count in lengths(batch) if count == size), None)
    if path is None:
        raise InputError(f"{_ambiguous(batch)}: its loader declares {size}, {_describe_sizes(batch)}: {_REMEDY}")
    return (path,)


def _unambiguous_paths(batch: Any) -> tuple[Path, ...]:
    """Return the paths to the parts of `batch` that determine its size, which must have only one possible value."""
    sizes = possible_sizes(batch)
    listed = isinstance(batch, list | tuple) and any(
        () in paths and hasattr(batch[0], "ndim") for paths in sizes.values()
    )
    if len(sizes) != 1 or listed:  # the tensors in a list may also be columns of different lengths
        remedy = "add a tensor (samples, ...) to it, or " if not sizes else ""
        why = f"its loader declares no batch_size, {_describe_sizes(batch)}"
        raise InputError(f"{_ambiguous(batch)}: {why}: {remedy}{_REMEDY}")
    return next(iter(sizes.values()))


def _ambiguous(batch: Any) -> str:
    return f"cannot determine how many samples a {type(batch).__name__} batch contains"


def _describe_sizes(batch: Any) -> str:
    sizes = sorted(possible_sizes(batch))
    if sizes:
        return f"and it looks like {' or '.join(map(str, sizes))}"
    counts = list(dict.fromkeys(count for _, count in lengths(batch)))
    return (
        f"and its parts have lengths {', '.join(map(str, counts[:5]))}"
        if counts
        else "and none of its parts has a length"
    )


def _first_part(batch: Any, loader: Any) -> tuple[Path, Any, Any]:
    """Return the path to the first loader's part of `batch`, the part itself, and the loader."""
    path: Path = ()
    while isinstance(loader, Mapping | list | tuple) and loader:
        key = next(iter(loader)) if isinstance(loader, Mapping) else 0
        try:
            batch, loader, path = batch[key], loader[key], (*path, key)
        except (LookupError, TypeError):  # loaders used in turn
            return path, batch, None
    return path, batch, loader
