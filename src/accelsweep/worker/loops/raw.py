"""`loop: raw`: trains the same module on the same data in a plain, hand-written PyTorch loop.

The difference from `loop: lightning` is Lightning's overhead per step. The raw loop includes what a hand-written loop
would: one optimiser with a schedule, autocast or a cast module, a gradient scaler, and DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.data import extract_batch_size
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from torchmetrics import Metric

from accelsweep.errors import InputError, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.worker.loops.execution import ModuleExecution
from accelsweep.worker.loops.loop import (
    NO_LOSS,
    NO_VALIDATION,
    StepListener,
    ValidationListener,
    ValidationTimeout,
    extract_loss,
    first_learning_rate,
    invalid_loss,
    to_meta,
)
from accelsweep.worker.loops.sample_count import OptimizerSteps, SampleCounter, may_be_endless
from accelsweep.worker.loops.token_count import TokenCounter
from accelsweep.worker.loops.trainer_replacement import (
    CAST,
    LossScale,
    attach_trainer_stub,
    autocast_factory,
    batch_mover,
    checked_precision,
    endless_batches,
    rank_device,
    rank_loader,
    refuse_hooks,
    refuse_trainer_arguments,
    run_setup_hooks,
    with_batch_idx,
)
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.data_module import ModuleData
from accelsweep.workloads.instantiate import build_module, build_training_data

_MEANS = ("mean", "avg", torch.mean)


class RawLog:
    """Collects the values that a module logs without a Trainer, and keeps them on the device.

    Values logged per epoch are averaged, weighted by batch size; all others keep their last value. The loop sets
    `batch` before each step.
    """

    def __init__(self, device: torch.device) -> None:
        """Sums are reduced across ranks on `device`."""
        self._device = device
        self.batch: Any = None
        self._sums: dict[str, tuple[Any, float]] = {}
        self._metrics: dict[str, Metric] = {}
        self._validating = False

    def attach(self, module: pl.LightningModule) -> None:
        """Replace the module's `log` and `log_dict`, which need a Trainer."""
        module.log = self._log  # type: ignore[method-assign]
        module.log_dict = self._log_dict  # type: ignore[method-assign, assignment]

    def begin(self, *, validating: bool) -> None:
        """Discard all values at the start of training or validation."""
        self.batch = None
        self._sums.clear()
        for metric in self._metrics.values():
            metric.reset()
        self._metrics.clear()
        self._validating = validating

    def means(self, across_ranks: bool) -> dict[str, float]:
        """Return the mean or last value logged under each name.

        Waits for the device; if `across_ranks`, every rank must call it.
        """
        means = {}
        for name, (total, weight) in self._sums.items():
            pair = [float(total), weight]
            if across_ranks:
                reduced = torch.tensor(pair, dtype=torch.float64, device=self._device)
                torch.distributed.all_reduce(reduced)
                pair = reduced.tolist()
            means[name] = pair[0] / pair[1]
        return means | {name: float(metric.compute()) for name, metric in self._metrics.items()}

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
        if isinstance(value, Metric):  # a torchmetrics metric averages its own values, including across ranks
            self._metrics[name] = value
            return
        if isinstance(value, torch.Tensor):  # a copy, of a type that can be summed
            wide = value.dtype in (torch.float32, torch.float64)
            value = value.detach().to(value.dtype if wide else torch.float32, copy=True)
        if not (self._validating if on_epoch is None else on_epoch):
            self._sums[name] = (value, 1.0)
            return
        if reduce_fx not in _MEANS:
            reduction = getattr(reduce_fx, "__name__", reduce_fx)
            raise Unsupported(
                f"loop=raw averages logged values, but {name!r} has reduce_fx={reduction}: use loop=lightning"
            )
        weight = float(extract_batch_size(self.batch) if batch_size is None else batch_size)
        total, weights = self._sums.get(name, (0.0, 0.0))
        self._sums[name] = (total + value * weight, weights + weight)

    def _log_dict(self, values: Mapping[str, Any], *_: Any, **options: Any) -> None:
        for name, value in values.items():
            self._log(name, value, **options)


class RawLoop:
    """A training loop without Lightning's Trainer."""

    def __init__(self, spec: RunSpec) -> None:
        """Select device and precision. Raises Unsupported for anything that only Lightning's loop supports."""
        self._spec, self._place = spec, RankPlace.of(spec)
        self.device = rank_device(spec.config.accelerator, self._place)
        self.precision = checked_precision(spec, self.device, "loop=raw")
        refuse_trainer_arguments(spec, "loop=raw")
        init_process_group(self._place, spec, self.device.type)
        self._heartbeat = Heartbeat(spec.heartbeat(self._place.rank))
        self.strategy = "ddp" if spec.world_size > 1 else "single_device"
        self.name, self.optimizer, self.accumulate = "raw", "none", spec.config.gradient_accumulation or 1
        self.epoch_ends: list[int] = []
        self.optimizer_steps = OptimizerSteps() if self.accumulate > 1 else None
        self.execution, self.tokens = ModuleExecution(spec.config), TokenCounter()
        self.example: Any = None
        self.learning_rate: float | None = None
        self.loss_scale = LossScale(self.precision)
        self._autocast = autocast_factory(self.precision, self.device)
        self.teardown_error: BaseException | None = None  # always None, because no hooks run after the last step
        self._counter = SampleCounter(spec.config.first_batch_size, spec.world_size)
        self._log = RawLog(self.device)
        self._timer: PhaseTimer | None = None
        self._parallel: DistributedDataParallel | None = None
        self._without_exchange = ExitStack()

    @property
    def logged(self) -> dict[str, float]:
        """The mean of each logged value since the last phase began."""
        return self._log.means(self.strategy == "ddp")

    @property
    def epoch_samples(self) -> int | None:
        """The number of samples in one pass over the training data."""
        return self._counter.epoch_samples(self.data, self._loader)

    def time_phases(self, timer: PhaseTimer) -> None:
        """Report the phases of all further steps to `timer`."""
        self._timer = timer

    def disable_gradient_sync(self) -> bool:
        """Enter `no_sync` for the remaining lifetime of this module."""
        assert self._parallel is not None, "a single rank has no gradients to exchange"
        self._without_exchange.enter_context(self._parallel.no_sync())
        return True

    def drive(self, listener: StepListener, validation: ValidationListener | None = None, data: Any = None) -> None:
        """Train a fresh module, using the run's seed, until one of the listeners ends the phase."""
        seed_all(self._spec.run.seed)
        config = self._spec.config
        self.module = build_module(config, self._spec.axes)
        refuse_hooks(self.module)
        self._log.attach(self.module)
        self.data = build_training_data(config, self._spec.run.seed, self.device, self.module, data)
        attach_trainer_stub(self.module, self.data, self._place, self._spec)
        run_setup_hooks(self.data, self.module, self._place)
        self.module.to(self.device, CAST.get(self.precision, torch.float32)).train()
        self._move = batch_mover(self.module, self.data, self.device, CAST.get(self.precision))
        self._loader = loader = rank_loader(self.data.train_dataloader(), self._place)
        if validation is not None and not self._validates():
            raise InputError(NO_VALIDATION)
        with self.execution:
            phases = self._phases(_Step(self.module))
            batches = endless_batches(loader, self._pass_ended, self._heartbeat)
            self._log.begin(validating=False)
            self.tokens.restart()
            listener.begin()
            if self._timer is None:
                self._steps(phases, batches, listener, validation)
            else:
                self._steps(phases.timed(self._timer), self._timer.fetching(batches), listener, validation)

    def validate(self) -> dict[str, float] | None:
        """Return the values that the trained module logs on the validation set; None if there is no validation set."""
        loader = self.data.val_dataloader() if self._validates() else []
        if loader == []:
            return None
        if not isinstance(loader, DataLoader):
            raise Unsupported(f"loop=raw validates with a single DataLoader, not a {type(loader).__name__}")
        self._log.begin(validating=True)
        self.module.eval()
        step, timeout = with_batch_idx(self.module.validation_step), ValidationTimeout(self._spec.run_seconds)
        owner = self.module if isinstance(self.data, ModuleData) else self.data
        check_time = may_be_endless(loader)
        with torch.no_grad(), self._autocast():
            for number, batch in enumerate(loader):
                if check_time:
                    timeout.check(number + 1, owner)
                self._log.batch = self._move(batch)
                step(self._log.batch, number)
        return self.logged

    def _pass_ended(self, steps: int) -> None:
        self.epoch_ends.append(steps)
        self._counter.pass_ended(complete=True)

    def _validates(self) -> bool:
        has_data = type(self.data).val_dataloader is not pl.LightningDataModule.val_dataloader
        return has_data and type(self.module).validation_step is not pl.LightningModule.validation_step

    def _steps(
        self, phases: _Phases, batches: Iterable[Any], listener: StepListener, validation: ValidationListener | None
    ) -> None:
        has_loss = False
        for number, batch in enumerate(batches):
            self._log.batch = moved = phases.move(batch)
            completes_step = (number + 1) % self.accumulate == 0
            with nullcontext() if completes_step or self._parallel is None else self._parallel.no_sync():
                loss = phases.forward(moved, number)
                if loss is not None:
                    phases.backward(loss)
            if loss is not None:
                self._count_gradients(number, completes_step)
                if completes_step:
                    phases.update()
            elif self._place.size > 1:
                raise Unsupported(
                    "training_step returned None, but a rank cannot skip a step on its own: return a loss"
                )
            has_loss = has_loss or loss is not None
            if number == 0:
                self.example = to_meta(moved)
                self.execution.stop()
                self.execution.check()
            samples = self._counter.count(batch, self._loader, self.module)
            self.tokens.add(moved, self.module)
            self.tokens.end_step()
            enough = listener.step_done(samples, None if loss is None else loss.detach())
            validates = validation is not None and (enough or (number + 1) % validation.every_steps == 0)
            self._heartbeat.step(pauses=enough or validates)
            if validation is not None and validates:
                enough = validation.validated(self.validate() or {}) or enough
                self.module.train()
                self._log.begin(validating=False)
            if enough:
                break
        if not has_loss:
            raise InputError(NO_LOSS)
        self.learning_rate = first_learning_rate([self._optimizer])

    def _count_gradients(self, batch: int, completes_step: bool) -> None:
        if self.optimizer_steps is not None:
            self.optimizer_steps.batch_begins(batch)
            self.optimizer_steps.gradients_added()
            if completes_step:
                self.optimizer_steps.stepped(self._optimizer)

    def _phases(self, step: nn.Module) -> _Phases:
        optimizer, schedule = _one_optimizer(self.module)
        self._optimizer = optimizer
        self.optimizer = type(optimizer).__name__
        if self._place.size > 1:
            devices = None if self.device.index is None else [self.device.index]
            step = self._parallel = DistributedDataParallel(step, device_ids=devices)
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")
        self.loss_scale = LossScale(self.precision, scaler, optimizer)
        if self.optimizer_steps is not None:
            self.optimizer_steps.watch([optimizer], self.accumulate)

        def forward(batch: Any, number: int) -> Any:
            with self._autocast():
                output = step(batch, number)
            if wrong := invalid_loss(output):
                raise InputError(wrong)
            return extract_loss(output)

        def backward(loss: Any) -> None:
            scaler.scale(loss if self.accumulate == 1 else loss / self.accumulate).backward()

        def update() -> None:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if schedule is not None:
                schedule.step()

        return _Phases(self._move, forward, backward, update)


@dataclass(frozen=True)
class _Phases:
    """The functions that perform the phases of a step, in the order in which they are called."""

    move: Callable[[Any], Any]
    forward: Callable[[Any, int], Any]
    backward: Callable[[Any], None]
    update: Callable[[], None]

    def timed(self, timer: PhaseTimer) -> _Phases:
        """Return wrappers around these callables that report each phase to `timer`."""
        return _Phases(
            timer.around("host_to_device", self.move),
            timer.around("forward", self.forward),
            timer.around("backward", self.backward),
            timer.around("optimizer", self.update),
        )


class _Step(nn.Module):
    """Calls the module's training step in `forward`, where DistributedDataParallel prepares its gradient sync."""

    def __init__(self, module: pl.LightningModule) -> None:
        super().__init__()
        self.module = module
        self._step = with_batch_idx(module.training_step)

    def forward(self, batch: Any, number: int) -> Any:
        return self._step(batch, number)


def _one_optimizer(module: pl.LightningModule) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
    """Return the module's only optimiser and its schedule, if any, which is stepped after each optimiser step."""
    configured: Any = module.configure_optimizers()
    schedules: Any = ()
    if isinstance(configured, tuple) and len(configured) == 2 and all(isinstance(part, list) for part in configured):
        configured, schedules = configured
    if isinstance(configured, list | tuple) and len(configured) == 1:
        configured = configured[0]
    if isinstance(configured, dict):
        schedules = [configured["lr_scheduler"]] if "lr_scheduler" in configured else []
        configured = configured["optimizer"]
    if not isinstance(configured, torch.optim.Optimizer) or not module.automatic_optimization or len(schedules) > 1:
        raise Unsupported(
            "loop=raw supports one optimiser with at most one schedule, but this module's configure_optimizers "
            "returns something else: use loop=lightning"
        )
    if not schedules:
        return configured, None
    settings = schedules[0] if isinstance(schedules[0], dict) else {"scheduler": schedules[0]}
    if settings.get("interval", "epoch") != "step" or settings.get("frequency", 1) != 1 or settings.get("monitor"):
        raise Unsupported(
            "loop=raw steps a schedule after every optimiser step, but this module's schedule uses epochs, a metric or "
            'a different frequency: use loop=lightning, or set {"interval": "step"}'
        )
    return configured, settings["scheduler"]
