"""The number of samples in a batch, in a pass over a loader, and in an optimiser step.

Every rate follows from the first, so what is ambiguous is refused. The module's own `samples(batch)` counts where there
is one. Else the loader states how many samples a whole batch has, and the first batch shows where in it that number
stands. A loader that states nothing must give batches that can be read in one way only.

A pass and an optimiser step are counted as they happen. Lightning steps the optimiser at the end of each epoch,
whatever `accumulate_grad_batches` says; a callback changes that number by epoch, and under manual optimisation the
module alone decides. So the number in the config says what was asked for, and not what an optimiser step held.
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
from accelsweep.measure.batch_size import Path, length_at, lengths_at, places, readings, sizes_in_a_pass, stated_size
from accelsweep.workloads.training_stream import RepeatedDataset

_REMEDY = "define samples(self, batch) in the LightningModule, which returns their number"

RARE_STEPS = 0.05
"""Optimiser steps of another size than the rest are ignored up to this share: the last one of a long epoch is short."""


MOST_WITNESSES = 3
"""Parts of a batch that are asked where its first dimension is in question; the outermost ones tell the most."""


class SampleCount:
    """Counts the samples of one loader's batches, the first of which decides how."""

    def __init__(self, batch_size: int, ranks: int = 1) -> None:
        """`batch_size` is what the first batch must hold on each of the `ranks`."""
        self._batch_size, self._ranks = batch_size, ranks
        self._count: Callable[[Any], int] | None = None
        self._uniform = True
        self._in_pass = 0
        self._passes: list[int] = []

    def of(self, batch: Any, loader: Any, module: Any) -> int:
        """Return the samples in `batch`, which `loader` gave to `module`.

        Raises InputError where that cannot be told, or where the first batch shows that the data ignores `batch_size`.
        """
        begins = self._count is None
        if self._count is None:
            self._count = _own(module) or _by_place(batch, loader, self._ranks)
        samples = self._count(batch)
        if begins and samples != self._batch_size:
            raise InputError(
                f"the data's first batch holds {samples} samples although batch_size={self._batch_size}: "
                + _why(samples, self._batch_size, self._ranks, loader)
            )
        self._uniform = self._uniform and samples == self._batch_size
        self._in_pass += samples
        return samples

    def pass_ended(self, complete: bool) -> None:
        """Note that a pass over the loader ended; one that was cut off is not `complete` and tells nothing."""
        if complete:
            self._passes.append(self._in_pass)
        self._in_pass = 0

    def of_a_pass(self, data: Any, loader: Any, batches: float | None = None) -> int | None:
        """Return the samples of one pass over the training data on all ranks together; None where nothing tells.

        They are what the data module states in `epoch_samples`, or else what was counted in a pass that ended, or else
        what follows from the loader. `batches` is how many batches a pass takes, where that is not up to the loader.
        """
        stated = getattr(data, "epoch_samples", None)
        if stated is not None:
            return int(stated)
        first = _first(loader)
        rows = getattr(first, "dataset", None)
        if isinstance(rows, RepeatedDataset):  # a pass over the repeated rows is none over the data
            return len(rows.dataset)
        if self._passes:
            return round(sum(self._passes) / len(self._passes)) * self._ranks
        if isinstance(rows, IterableDataset) and self._ranks > 1:
            return None  # whether its length is that of one rank's share is not known
        whole, own = self._of_loader(first), length_of(first)
        if batches is None or math.isinf(batches) or own is None or batches == own:
            return None if whole is None else whole * self._ranks
        rounds, rest = divmod(int(batches), own)  # cut off by a limit, or begun again beside a longer loader
        if rounds and whole is None:
            return None
        return (rounds * (whole or 0) + rest * self._batch_size) * self._ranks

    def _of_loader(self, loader: Any) -> int | None:
        """Return the samples that this rank gets from a whole pass over `loader`; None where that is not known."""
        if not self._uniform:  # within a pass that has not ended yet
            return None
        if isinstance(loader, DataLoader) and loader.batch_size == self._batch_size:
            rows = length_of(loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler)
            if rows is not None:
                return rows - rows % loader.batch_size if loader.drop_last else rows
            return None
        batches = length_of(loader)
        sampler = getattr(loader, "batch_sampler", None)
        if type(sampler) is BatchSampler and sampler.batch_size == self._batch_size:
            rows = length_of(sampler.sampler)
            if rows is not None:
                return rows - rows % sampler.batch_size if sampler.drop_last else rows
        return None if batches is None else batches * self._batch_size


class OptimizerSteps:
    """Counts the batches whose gradients each optimiser step holds. Batches are numbered from 0."""

    def __init__(self) -> None:
        """Nothing is counted before `watch`."""
        self._batch, self._most = -1, 1
        self._waiting: dict[torch.optim.Optimizer, set[int]] = {}
        self._since: dict[torch.optim.Optimizer, int] = {}
        self._held: dict[torch.optim.Optimizer, list[tuple[int, int]]] = {}

    def watch(self, optimizers: Sequence[torch.optim.Optimizer], asked: int, wrappers: Sequence[Any] = ()) -> None:
        """Begin to count, where a step is `asked` to hold so many batches.

        Under manual optimisation the gradients and steps of each optimiser tell by themselves; `wrappers` are then what
        Lightning gives the module in the place of each optimiser.
        """
        self._batch, self._most = -1, asked
        self._waiting, self._held = {each: set() for each in optimizers}, {each: [] for each in optimizers}
        self._since = dict.fromkeys(optimizers, -1)
        for optimizer, wrapper in zip(optimizers, wrappers, strict=False):
            self._listen_to(optimizer, wrapper, self._waiting[optimizer])

    def _listen_to(self, optimizer: torch.optim.Optimizer, wrapper: Any, waiting: set[int]) -> None:
        """Note the steps of `optimizer`, and the gradients of its first and its last parameter.

        The loss of another optimiser may pass through them, too: what `zero_grad` drops does not count.
        """
        optimizer.register_step_post_hook(lambda stepped, *_: self.stepped(stepped))
        learned = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
        for parameter in {id(each): each for each in (*learned[:1], *learned[-1:])}.values():
            parameter.register_post_accumulate_grad_hook(lambda _: waiting.add(self._batch))

        def dropping(zero_grad: Callable[..., None]) -> Callable[..., None]:
            @functools.wraps(zero_grad)
            def zeroed(*arguments: Any, **options: Any) -> None:
                zero_grad(*arguments, **options)
                waiting.clear()

            return zeroed

        called: tuple[Any, ...] = (optimizer, wrapper)
        for one in called:
            one.zero_grad = dropping(one.zero_grad)

    def batch_begins(self, number: int) -> None:
        """Note that this batch is about to be trained on."""
        self._batch = number

    def gradients_added(self) -> None:
        """Note that the present batch's gradients were added to those that wait (automatic optimisation)."""
        for waiting in self._waiting.values():
            waiting.add(self._batch)

    def gradients_dropped(self) -> None:
        """Note that the gradients that waited were set to zero (automatic optimisation)."""
        for waiting in self._waiting.values():
            waiting.clear()

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note a step of `optimizer`. One that is noted a second time, without new gradients, counts once."""
        waiting = self._waiting.get(optimizer)
        if waiting is None or (not waiting and self._since[optimizer] == self._batch):
            return
        held = len(waiting) or self._batch - self._since[optimizer]
        self._held[optimizer].append((self._batch, held))
        self._most = max(self._most, held)
        self._since[optimizer] = self._batch
        waiting.clear()

    @property
    def unfinished(self) -> bool:
        """Whether gradients wait for a step, and for no more batches than a step has held so far."""
        return any(0 < len(waiting) < self._most for waiting in self._waiting.values())

    def held(self, since: int = 0) -> tuple[Counter[int], ...]:
        """Return, for each optimiser that stepped from batch `since` on, how many steps held how many batches."""
        counted = (Counter(count for batch, count in steps if batch >= since) for steps in self._held.values())
        return tuple(each for each in counted if each)


def usual(held: Iterable[Counter[int]]) -> int | None:
    """Return how many batches all but a few optimiser steps held; None where they differ, or where there was none."""
    found = set[int | None]()
    for counted in held:
        batches, steps = counted.most_common(1)[0]
        found.add(batches if steps >= (1.0 - RARE_STEPS) * counted.total() else None)
    return found.pop() if len(found) == 1 else None


def _why(samples: int, batch_size: int, ranks: int, loader: Any) -> str:
    """Return why the first batch may hold another number of samples than `batch_size`, and what mends it."""
    first = _first(loader)
    if first is not loader:
        name = next(iter(loader)) if isinstance(loader, Mapping) else 0
        return (
            f"of several training loaders the first is counted, {name!r}. Put first the one that batch_size is for, or "
            "define samples(self, batch) in the LightningModule"
        )
    rows = rows_of(first)
    if rows is not None and samples < batch_size and samples == -(-rows // ranks):
        share = "" if ranks == 1 else f", {samples} for each of {ranks} ranks"
        return f"the set has {rows} rows{share}. Lower batch_size, or use a larger set"
    if ranks > 1 and samples == batch_size // ranks:
        return (
            f"that is {batch_size} / {ranks} ranks. batch_size counts the samples of each rank, and the data divides "
            f"it by world_size: add +data.batch_size={batch_size * ranks}, which it divides to {batch_size}, or take "
            "the division out of its code"
        )
    if stated_size(first) == samples:
        return (
            f"its loader has a batch size of its own. Measure that with batch_size={samples}, or give the data "
            "module's batch_size to its DataLoader"
        )
    return "give the data module's batch_size to its DataLoader"


def no_batch(loader: Any) -> str:
    """Return the message where a training loader gave no batch at all."""
    first = _first(loader)
    rows, size = rows_of(first), stated_size(first)
    why = "" if rows is None else f": the set has {rows} row{'' if rows == 1 else 's'}"
    if rows and size is not None and getattr(first, "drop_last", False):
        why += f", and drop_last=True drops a batch of fewer than {size}"
    return f"the training loader gave no batch{why}: lower batch_size, or keep short batches"


def rows_of(loader: Any) -> int | None:
    """Return the rows of a loader's data set; None where it has none that could be counted."""
    rows = getattr(loader, "dataset", None)
    return None if rows is None or isinstance(rows, IterableDataset) else length_of(rows)


def length_of(sized: Any) -> int | None:
    """Return the length of a set, a sampler or a loader; None where it has none."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def may_be_endless(loader: Any) -> bool:
    """Return whether a loader says nothing about its end. Lightning warns of iterable sets that state a length."""
    return length_of(loader) is None and not getattr(getattr(loader, "dataset", None), "finite", False)


def _first(loader: Any) -> Any:
    """Return the first of several loaders, whose samples are counted; a single one itself."""
    while isinstance(loader, Mapping | list | tuple) and loader:
        loader = next(iter(loader.values())) if isinstance(loader, Mapping) else loader[0]
    return loader


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


def _by_place(batch: Any, loader: Any, ranks: int) -> Callable[[Any], int]:
    prefix, first, loader = _first_loaders(batch, loader)
    stated, rows = stated_size(loader), rows_of(loader)
    if stated is not None and rows:
        stated = min(stated, -(-rows // ranks))  # a set with fewer rows than a batch gives all of them
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
