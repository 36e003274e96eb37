"""Distillation: a student learns from the outputs of a frozen teacher.

The loss follows G. Hinton, O. Vinyals and J. Dean, "Distilling the Knowledge in a Neural Network" (2015). The teacher
may run on another device, and may compute the next batch while the student trains on the current one. Either way it
receives the same batches in the same order, so losses are bitwise identical.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.errors import InputError, Unsupported
from accelsweep.measure.batch_size import declared_batch_size
from accelsweep.workloads.lightning_modules import Classifier
from accelsweep.workloads.training_stream import make_loader, rank_and_size

Batch = tuple[Tensor, Tensor]


class Teacher:
    """Runs a network on batches in a separate thread, first in, first out.

    The teacher is not a submodule of the student, so it is invisible to optimisers, precision plugins and strategies.
    torch assigns the teacher's thread as many intra-op threads as the rank.
    """

    def __init__(self, network: nn.Module, overlap: bool) -> None:
        """With `overlap`, batches are computed eagerly on submission, otherwise lazily when outputs are requested."""
        self.network = network.eval().requires_grad_(requires_grad=False)
        self._overlap = overlap
        self._queue: deque[tuple[Tensor, torch.device, Future[Tensor] | None]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="teacher")

    def clear(self) -> None:
        """Drop the submitted batches whose outputs were not requested."""
        self._queue.clear()

    def submit(self, inputs: Tensor, device: torch.device) -> None:
        """Queue the inputs (samples, ...) of an upcoming batch, to be computed on `device`."""
        future = self._thread.submit(self._forward, inputs, device) if self._overlap else None
        self._queue.append((inputs, device, future))

    def next_outputs(self) -> Tensor:
        """Return the outputs (samples, ..., classes) for the oldest queued batch."""
        inputs, device, future = self._queue.popleft()
        return (future or self._thread.submit(self._forward, inputs, device)).result()

    @torch.no_grad()
    def _forward(self, inputs: Tensor, device: torch.device) -> Tensor:
        self.network.to(device)
        outputs: Tensor = self.network(inputs.to(device))
        return outputs


class Distillation(Classifier):
    """A student and its teacher: networks that map inputs (samples, ...) to logits (samples, ..., classes).

    Each pass over the data starts with `begin_pass`; each batch is passed to `submit_to_teacher` before
    `training_step`, ideally one batch ahead. Validation uses the student alone.
    """

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module,
        teacher_device: str | None = None,
        overlap: bool = False,
        temperature: float = 4.0,
        teacher_weight: float = 0.9,
    ) -> None:
        """`teacher_device` is a torch device such as `cpu` or `cuda:1`; None uses the student's.

        `temperature` softens both outputs; `teacher_weight` is the teacher's share of the loss. The teacher runs in
        FP32, regardless of the student's precision.
        """
        for name, network in (("teacher", teacher), ("student", student)):
            if not isinstance(network, nn.Module):
                raise InputError(f"model.{name} gave a {type(network).__name__}; it must be a torch.nn.Module")
        if temperature <= 0 or not 0 <= teacher_weight <= 1:
            raise InputError(
                f"model.temperature={temperature} must be more than 0, and model.teacher_weight={teacher_weight} must "
                "be between 0 and 1"
            )
        super().__init__(student)
        self._teacher = Teacher(teacher, overlap)
        self._teacher_device = None if teacher_device is None else _parse_device(teacher_device)
        self._temperature, self._teacher_weight = temperature, teacher_weight

    def begin_pass(self) -> None:
        """Drop the batches that were submitted in an earlier pass."""
        self._teacher.clear()

    def submit_to_teacher(self, batch: Batch) -> None:
        """Queue an upcoming training batch. Raises Unsupported for images that still need preprocessing."""
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise InputError(f"distillation trains on batches (inputs, targets), but the data set yields {type(batch)}")
        inputs = batch[0]
        if inputs.dtype is torch.uint8:
            raise Unsupported(
                "data.preprocess=device: the teacher gets batches before they are copied but needs preprocessed images:"
                " set data.preprocess=cpu or null"
            )
        self._teacher.submit(inputs, self._teacher_device or self.device)

    def training_step(self, batch: Batch, _batch_idx: int) -> Tensor:
        """Return the loss of a batch (inputs, targets), in nats."""
        inputs, targets = batch
        if inputs.is_meta:  # FLOPs are being counted: include the teacher's if it shares the student's device
            logits = self(inputs)
            return self._loss(logits, logits if self._teacher_device else self._teacher.network(inputs), targets)
        outputs = self._teacher.next_outputs().to(inputs.device)
        return self._loss(self(inputs), outputs, targets)

    def _loss(self, logits: Tensor, teacher_logits: Tensor, targets: Tensor) -> Tensor:
        if logits.shape != teacher_logits.shape:
            raise InputError(
                f"the teacher's outputs have shape {tuple(teacher_logits.shape)}, the student's {tuple(logits.shape)}: "
                "give model.teacher and model.student the same number of classes"
            )
        logits, teacher_logits = logits.float().flatten(0, -2), teacher_logits.float().flatten(0, -2)
        ours, theirs = (functional.log_softmax(x / self._temperature, dim=-1) for x in (logits, teacher_logits))
        soft = functional.kl_div(ours, theirs, reduction="batchmean", log_target=True) * self._temperature**2
        hard = functional.cross_entropy(logits, targets.flatten())
        return self._teacher_weight * soft + (1.0 - self._teacher_weight) * hard

    def around_data(self, data: pl.LightningDataModule) -> None:
        """Submit each training batch to the teacher one batch ahead of the student.

        On several ranks the loader must shard its rows itself; map-style data sets are rejected.
        """
        train_dataloader = data.train_dataloader

        def with_lookahead() -> DataLoader[Any]:
            loader = train_dataloader()
            if rank_and_size()[1] > 1 and not isinstance(getattr(loader, "dataset", None), IterableDataset):
                raise Unsupported("distillation on several ranks needs a stream that shards its rows: use data=dataset")
            return make_loader(_Lookahead(loader, self, declared_batch_size(loader)))

        data.train_dataloader = with_lookahead  # type: ignore[method-assign]


def _parse_device(name: str) -> torch.device:
    """Return the teacher's device. Raises InputError if torch rejects the name, Unsupported if the device is absent."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"model.teacher_device={name} is not a device: use cpu, cuda or cuda:1 ({error})") from error
    backend = getattr(torch, device.type, None)
    if device.type != "cpu" and not (
        backend is not None and backend.is_available() and (device.index or 0) < backend.device_count()
    ):
        raise Unsupported(f"model.teacher_device={name}: this run has no such device")
    return device


class _Lookahead(IterableDataset[Any]):
    """Yields each batch after submitting the next one to the teacher."""

    def __init__(self, loader: Any, module: Distillation, batch_size: int | None) -> None:
        self._loader, self._module, self.batch_size = loader, module, batch_size

    def __iter__(self) -> Iterator[Any]:
        self._module.begin_pass()
        pending: list[Any] = []
        for batch in self._loader:
            self._module.submit_to_teacher(batch)
            yield from pending
            pending = [batch]
        yield from pending
