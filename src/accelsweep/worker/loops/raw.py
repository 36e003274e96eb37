"""`loop: raw`: the same module and data in a raw PyTorch loop, as one would write it by hand.

The difference between the two loops is Lightning's cost per step. Only parts of a hand-written loop are here: one
optimiser with a schedule, autocast or a cast module, a gradient scaler, DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.data import extract_batch_size
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torchmetrics import Metric

from accelsweep.errors import InputError, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.worker.loops.loop import (
    NO_LOSS,
    NO_VALIDATION,
    Examiner,
    Listener,
    ValidationTime,
    learning_rate_of,
    loss_in,
    not_a_loss,
    on_meta,
)
from accelsweep.worker.loops.raw_parts import (
    CAST,
    LossScale,
    autocast_of,
    device_of,
    do_without_trainer,
    endless,
    mover,
    numbered,
    one_loader,
    precision_of,
    refuse_hooks,
    refuse_trainer_arguments,
    set_up,
)
from accelsweep.worker.loops.sample_count import SampleCount, may_be_endless
from accelsweep.worker.rank_setup import RankPlace, join_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.instantiate import build_module, build_training_data

# `self.log` without a Trainer: values that a module logs in the raw loop stay on the device and are read when asked.

_MEANS = ("mean", "avg", torch.mean)


class RawLog:
    """Sums of logged values, weighted by their batch size; of a value that counts as it was last, that value alone.

    The loop shows each `batch` before its step.
    """

    def __init__(self, device: torch.device) -> None:
        """`device` is where the ranks' sums meet."""
        self._device = device
        self.batch: Any = None
        self._sums: dict[str, tuple[Any, float]] = {}
        self._metrics: dict[str, Metric] = {}
        self._validating = False

    def listen_to(self, module: pl.LightningModule) -> None:
        """Replace the `log` and `log_dict` of a module: they need a Trainer."""
        module.log = self._log  # type: ignore[method-assign]
        module.log_dict = self._log_dict  # type: ignore[method-assign, assignment]

    def begin(self, *, validating: bool) -> None:
        """Forget the logged values: training begins, or validation."""
        self.batch = None
        self._sums.clear()
        for metric in self._metrics.values():
            metric.reset()
        self._metrics.clear()
        self._validating = validating

    def means(self, across_ranks: bool) -> dict[str, float]:
        """Return each name's last value or mean. Waits for the device; with `across_ranks` every rank must call it."""
        found = {}
        for name, (total, weight) in self._sums.items():
            pair = [float(total), weight]
            if across_ranks:
                shared = torch.tensor(pair, dtype=torch.float64, device=self._device)
                torch.distributed.all_reduce(shared)
                pair = shared.tolist()
            found[name] = pair[0] / pair[1]
        return found | {name: float(metric.compute()) for name, metric in self._metrics.items()}

    def _log(
        self,
        name: str,
        value: Any,
        *_: Any,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        batch_size: int | None = None,
        **__: Any,
    ) -> None:
        if isinstance(value, Metric):  # it averages, also over ranks, by itself
            self._metrics[name] = value
            return
        if not (self._validating if on_epoch is None else on_epoch):
            self._sums[name] = (_wide(value), 1.0)
            return
        if reduce_fx not in _MEANS:
            shown = getattr(reduce_fx, "__name__", reduce_fx)
            raise Unsupported(
                f"loop=raw averages logged values, but {name!r} has reduce_fx={shown}: use loop=lightning"
            )
        weight = float(extract_batch_size(self.batch) if batch_size is None else batch_size)
        total, weights = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (total + _wide(value) * weight, weights + weight)

    def _log_dict(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **options)


def _wide(value: Any) -> Any:
    """Return a number that can be summed, a tensor as a copy: whole numbers and 16 bits as float32."""
    if not isinstance(value, torch.Tensor):
        return value
    wide = value.dtype in (torch.float32, torch.float64)
    return value.detach().to(value.dtype if wide else torch.float32, copy=True)


Schedule = torch.optim.lr_scheduler.LRScheduler


class RawLoop:
    """A hand-written loop and its parts."""

    def __init__(self, spec: RunSpec) -> None:
        """Choose device and precision. Raises Unsupported for features that only Lightning's loop has."""
        self._spec, self._place = spec, RankPlace.of(spec)
        self.device = device_of(spec.config.accelerator, self._place)
        self.precision = precision_of(spec, self.device, "loop=raw")
        refuse_trainer_arguments(spec, "loop=raw")
        join_group(self._place, spec, self.device.type)
        self._heartbeat = Heartbeat(spec.heartbeat(self._place.rank))
        self.strategy = "ddp" if spec.world_size > 1 else "single_device"
        self.name, self.optimizer, self.accumulate = "raw", "none", 1
        self.epoch_ends: list[int] = []
        self.optimizer_steps = None
        self.example: Any = None
        self.learning_rate: float | None = None
        self.loss_scale = LossScale(self.precision)
        self._autocast = autocast_of(self.precision, self.device)
        self.late_error: BaseException | None = None  # no hook of the user's follows the last step
        self._count = SampleCount(spec.config.batch_size, spec.world_size)
        self._log = RawLog(self.device)
        self._timer: PhaseTimer | None = None
        self._parallel: DistributedDataParallel | None = None
        self._without_exchange = ExitStack()

    @property
    def logged(self) -> dict[str, float]:
        """The values that the module logged, each name's mean since the last phase began."""
        return self._log.means(self.strategy == "ddp")

    @property
    def epoch_samples(self) -> int | None:
        """The samples of one pass over the training data."""
        return self._count.of_a_pass(self.data, self._loader)

    def watch(self, timer: PhaseTimer) -> None:
        """Put `timer` around the parts of a step."""
        self._timer = timer

    def stop_exchange(self) -> bool:
        """Enter `no_sync` for the rest of this module's life."""
        assert self._parallel is not None, "one rank exchanges nothing"
        self._without_exchange.enter_context(self._parallel.no_sync())
        return True

    def drive(self, listener: Listener, examiner: Examiner | None = None, data: Any = None) -> None:
        """Train a fresh module, seeded by the run, until `listener` or `examiner` has enough."""
        seed_all(self._spec.run.seed)
        config = self._spec.config
        self.module = build_module(config, self._spec.axes)
        refuse_hooks(self.module)
        self._log.listen_to(self.module)
        self.data = build_training_data(config, self._spec.run.seed, self.device, self.module, data)
        do_without_trainer(self.module, self.data, self._place, self._spec)
        set_up(self.data, self.module, self._place)
        self.module.to(self.device, CAST.get(self.precision, torch.float32)).train()
        self._move = mover(self.module, self.data, self.device, CAST.get(self.precision))
        self._loader = loader = one_loader(self.data.train_dataloader(), self._place)
        if examiner is not None and not self._validates():
            raise InputError(NO_VALIDATION)
        parts, batches = self._parts(_Step(self.module)), endless(loader, self._pass_ended, self._heartbeat)
        self._log.begin(validating=False)
        listener.begin()
        if self._timer is None:
            self._steps(parts, batches, listener, examiner)
        else:
            self._steps(parts.timed(self._timer), self._timer.fetching(batches), listener, examiner)

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs over the validation set; None where the data has none."""
        loader = self.data.val_dataloader() if self._validates() else []
        if loader == []:
            return None
        if not isinstance(loader, DataLoader):
            raise Unsupported(f"loop=raw validates with one DataLoader; the data gives a {type(loader).__name__}")
        self._log.begin(validating=True)
        self.module.eval()
        step, time = numbered(self.module.validation_step), ValidationTime(self._spec.run_seconds)
        endless = may_be_endless(loader)
        with torch.no_grad(), self._autocast():
            for number, batch in enumerate(loader):
                if endless:
                    time.look(number + 1, self.module if isinstance(self.data, ModuleData) else self.data)
                self._log.batch = self._move(batch)
                step(self._log.batch, number)
        return self.logged

    def _pass_ended(self, steps: int) -> None:
        self.epoch_ends.append(steps)
        self._count.pass_ended(complete=True)

    def _validates(self) -> bool:
        has_data = type(self.data).val_dataloader is not pl.LightningDataModule.val_dataloader
        return has_data and type(self.module).validation_step is not pl.LightningModule.validation_step

    def _examined(self, examiner: Examiner) -> bool:
        enough = examiner.examined(self.validate() or {})
        self.module.train()
        self._log.begin(validating=False)
        return enough

    def _steps(self, parts: _Parts, batches: Iterable[Any], listener: Listener, examiner: Examiner | None) -> None:
        has_loss = False
        for number, batch in enumerate(batches):
            self._log.batch = there = parts.move(batch)
            loss = parts.forward(there, number)
            if loss is not None:
                parts.backward(loss)
                parts.update()
            elif self._place.size > 1:
                raise Unsupported("training_step returned None, and no rank of several can skip a step: return a loss")
            has_loss = has_loss or loss is not None
            if number == 0:
                self.example = on_meta(there)
            samples = self._count.of(batch, self._loader, self.module)
            enough = listener.step_done(samples, None if loss is None else loss.detach())
            validates = examiner is not None and (enough or (number + 1) % examiner.every_steps == 0)
            self._heartbeat.step(pauses=enough or validates)
            if examiner is not None and validates:
                enough = self._examined(examiner) or enough
            if enough:
                break
        if not has_loss:
            raise InputError(NO_LOSS)
        self.learning_rate = learning_rate_of([self._optimizer])

    def _parts(self, step: nn.Module) -> _Parts:
        optimizer, schedule = _one_optimizer(self.module)
        self._optimizer = optimizer
        self.optimizer = type(optimizer).__name__
        if self._place.size > 1:
            devices = None if self.device.index is None else [self.device.index]
            step = self._parallel = DistributedDataParallel(step, device_ids=devices)
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")
        self.loss_scale = LossScale(self.precision, scaler, optimizer)

        def forward(batch: Any, number: int) -> Any:
            with self._autocast():
                output = step(batch, number)
            if wrong := not_a_loss(output):
                raise InputError(wrong)
            return loss_in(output)

        def backward(loss: Any) -> None:
            scaler.scale(loss).backward()

        def update() -> None:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()

        return _Parts(self._move, forward, backward, update)


@dataclass(frozen=True)
class _Parts:
    """The parts of a step, in order."""

    move: Callable[[Any], Any]
    forward: Callable[[Any, int], Any]
    backward: Callable[[Any], None]
    update: Callable[[], None]

    def timed(self, timer: PhaseTimer) -> _Parts:
        """Return the same parts with `timer` around them."""
        return _Parts(
            timer.around("host_to_device", self.move),
            timer.around("forward", self.forward),
            timer.around("backward", self.backward),
            timer.around("optimizer", self.update),
        )


class _Step(nn.Module):
    """The module's training step as a forward, so that DistributedDataParallel can wrap it."""

    def __init__(self, module: pl.LightningModule) -> None:
        super().__init__()
        self.module = module
        self._step = numbered(module.training_step)

    def forward(self, batch: Any, number: int) -> Any:
        return self._step(batch, number)


def _one_optimizer(module: pl.LightningModule) -> tuple[torch.optim.Optimizer, Schedule | None]:
    """Return the module's one optimiser and the schedule that is stepped after every step of it, if there is one."""
    found: Any = module.configure_optimizers()
    schedules: Any = ()
    if isinstance(found, tuple) and len(found) == 2 and all(isinstance(part, list) for part in found):
        found, schedules = found
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, dict):
        schedules = [found["lr_scheduler"]] if "lr_scheduler" in found else []
        found = found["optimizer"]
    if not isinstance(found, torch.optim.Optimizer) or not module.automatic_optimization or len(schedules) > 1:
        raise Unsupported(
            "loop=raw drives one optimiser with at most one schedule; this module's configure_optimizers gives "
            "something else: use loop=lightning"
        )
    return found, _every_step(schedules[0]) if schedules else None


def _every_step(stated: Any) -> Schedule:
    settings = stated if isinstance(stated, dict) else {"scheduler": stated}
    if settings.get("interval", "epoch") != "step" or settings.get("frequency", 1) != 1 or settings.get("monitor"):
        raise Unsupported(
            "loop=raw steps a schedule after every optimiser step. This module's goes by epochs, by a metric or by "
            'another frequency: use loop=lightning, or give it {"interval": "step"}'
        )
    schedule: Schedule = settings["scheduler"]
    return schedule
