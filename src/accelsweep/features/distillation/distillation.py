"""Distillation: a student learns from the answers of a teacher, which does not learn.

The loss is that of G. Hinton, O. Vinyals and J. Dean, "Distilling the Knowledge in a Neural Network" (2015). The
teacher may lie on a device of its own. It may answer the next batch while the student trains on this one. It is shown
the same batches in the same order either way, so that every loss is the same, bit by bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Unpack

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from accelsweep.errors import InputError, Unsupported
from accelsweep.measure.batch_size import stated_size
from accelsweep.workloads.lightning_modules import Classifier, ExecutionOptions
from accelsweep.workloads.training_stream import make_loader, rank_and_size

Batch = tuple[Tensor, Tensor]


class Teacher:
    """A network that answers batches in a thread of its own, in the order in which it is shown them.

    It is no part of the student's module: no optimiser, no precision and no strategy sees it. torch gives its thread as
    many threads for operations as the rank has.
    """

    def __init__(self, network: nn.Module, overlap: bool) -> None:
        """With `overlap` a batch is answered once it is shown, otherwise once its answer is wanted."""
        self.network = network.eval().requires_grad_(requires_grad=False)
        self._overlap = overlap
        self._shown: deque[tuple[Tensor, torch.device, Future[Tensor] | None]] = deque()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="teacher")

    def forget(self) -> None:
        """Forget the batches that were shown and never asked for: another pass over the data begins."""
        self._shown.clear()

    def show(self, inputs: Tensor, device: torch.device) -> None:
        """Show the inputs (samples, ...) of a coming batch, which are answered on `device`."""
        begun = self._thread.submit(self._answer, inputs, device) if self._overlap else None
        self._shown.append((inputs, device, begun))

    def answer(self) -> Tensor:
        """Return the answer (samples, ..., classes) to the earliest batch that was shown and not asked for yet."""
        inputs, device, begun = self._shown.popleft()
        return (begun or self._thread.submit(self._answer, inputs, device)).result()

    @torch.no_grad()
    def _answer(self, inputs: Tensor, device: torch.device) -> Tensor:
        self.network.to(device)
        answers: Tensor = self.network(inputs.to(device))
        return answers


class Distillation(Classifier):
    """A student and its teacher: networks from inputs (samples, ...) to logits (samples, ..., classes).

    Whatever trains it calls `begin_pass`, and then `coming` with each batch before `training_step` gets it, one batch
    ahead if it can. Validation is the student's alone.
    """

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module,
        teacher_device: str | None = None,
        overlap: bool = False,
        temperature: float = 4.0,
        teacher_weight: float = 0.9,
        **execution: Unpack[ExecutionOptions],
    ) -> None:
        """`teacher_device` is None for the student's device, or a name of torch's: `cpu`, `cuda`, `cuda:1`.

        `temperature` softens both answers; `teacher_weight` is the teacher's share of the loss. The teacher computes in
        32 bits, whatever the student's precision.
        """
        for name, network in (("teacher", teacher), ("student", student)):
            if not isinstance(network, nn.Module):
                raise InputError(f"model.{name} gave a {type(network).__name__}; it must be a torch.nn.Module")
        if temperature <= 0 or not 0 <= teacher_weight <= 1:
            raise InputError(
                f"model.temperature={temperature} must be more than 0, and model.teacher_weight={teacher_weight} must "
                "lie between 0 and 1"
            )
        super().__init__(student, **execution)
        self._teacher = Teacher(teacher, overlap)
        self._teacher_device = None if teacher_device is None else _device(teacher_device)
        self._temperature, self._teacher_weight = temperature, teacher_weight

    def begin_pass(self) -> None:
        """Forget what the teacher was shown: the loader begins anew."""
        self._teacher.forget()

    def coming(self, batch: Batch) -> None:
        """Show the teacher a batch that will be trained on later. Raises Unsupported for images that are not ready."""
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise InputError(f"distillation trains on batches (inputs, targets), and the data gives {type(batch)}")
        inputs = batch[0]
        if inputs.dtype is torch.uint8:
            raise Unsupported(
                "data.preprocess=device: a teacher sees the batch before it is copied, and needs images that are ready:"
                " set data.preprocess=cpu or null"
            )
        self._teacher.show(inputs, self._teacher_device or self.device)

    def training_step(self, batch: Batch, _batch_idx: int) -> Tensor:
        """Return the loss of a batch (inputs, targets), in nats."""
        inputs, targets = batch
        if inputs.is_meta:  # operations are counted: those of the teacher too where it shares the student's device
            logits = self(inputs)
            return self._loss(logits, logits if self._teacher_device else self._teacher.network(inputs), targets)
        answers = self._teacher.answer().to(inputs.device)
        return self._loss(self(inputs), answers, targets)

    def _loss(self, logits: Tensor, answers: Tensor, targets: Tensor) -> Tensor:
        if logits.shape != answers.shape:
            raise InputError(
                f"the teacher answers in {tuple(answers.shape)} and the student in {tuple(logits.shape)}: give "
                "model.teacher and model.student as many classes"
            )
        logits, answers = logits.float().flatten(0, -2), answers.float().flatten(0, -2)
        ours, theirs = (functional.log_softmax(each / self._temperature, dim=-1) for each in (logits, answers))
        soft = functional.kl_div(ours, theirs, reduction="batchmean", log_target=True) * self._temperature**2
        hard = functional.cross_entropy(logits, targets.flatten())
        return self._teacher_weight * soft + (1.0 - self._teacher_weight) * hard

    def around_data(self, data: pl.LightningDataModule) -> None:
        """Show the teacher each batch one batch before the student gets it."""
        show_ahead(data, self)


def _device(name: str) -> torch.device:
    """Return the teacher's device. Raises InputError for a name that torch does not know, Unsupported without it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"model.teacher_device={name} is no device: write cpu, cuda or cuda:1 ({error})") from error
    if device.type != "cpu" and not _has(device):
        raise Unsupported(f"model.teacher_device={name}: this run has no such device")
    return device


def _has(device: torch.device) -> bool:
    kind = getattr(torch, device.type, None)
    return kind is not None and kind.is_available() and (device.index or 0) < kind.device_count()


# Batches that a teacher is shown one batch before the student gets them.


class _OneAhead(IterableDataset[Any]):
    def __init__(self, loader: Any, module: Distillation, batch_size: int | None) -> None:
        self._loader, self._module, self.batch_size = loader, module, batch_size

    def __iter__(self) -> Iterator[Any]:
        self._module.begin_pass()
        held: list[Any] = []
        for batch in self._loader:
            self._module.coming(batch)
            yield from held
            held = [batch]
        yield from held


def show_ahead(data: pl.LightningDataModule, module: Distillation) -> None:
    """Make the training loader of `data` show each batch to the teacher of `module` before it gives the one before it.

    A loader whose rows several ranks would have to share is refused when it is made: nobody could deal them out.
    """
    real = data.train_dataloader

    def train_dataloader() -> DataLoader[Any]:
        loader = real()
        rows = getattr(loader, "dataset", None)
        if rank_and_size()[1] > 1 and not isinstance(rows, IterableDataset):
            raise Unsupported(
                "distillation on several ranks needs a stream that deals its rows out: give the set with data=dataset"
            )
        return make_loader(_OneAhead(loader, module, stated_size(loader)))

    data.train_dataloader = train_dataloader  # type: ignore[method-assign]
