"""`loop: raw`: the same module and data in a bare PyTorch loop, as one would write it by hand.

The difference between the two loops is what Lightning costs per step. Only what a hand-written loop has is here: one
optimiser, autocast or a cast module, a gradient scaler, DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from accelsweep.core.errors import InputError, Unsupported
from accelsweep.execute.loops import Listener, count_samples, loss_in, on_meta
from accelsweep.execute.process import Place, join_group, seed_all
from accelsweep.execute.raw_data import moved, one_loader, set_up
from accelsweep.execute.raw_log import RawLog
from accelsweep.execute.spec import RunSpec
from accelsweep.measure.breakdown import PhaseTimer
from accelsweep.workloads.build import build_module
from accelsweep.workloads.fake_loader import build_training_data

AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
CAST = {"32-true": torch.float32, "64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


class RawLoop:
    """A hand-written loop and what it uses."""

    def __init__(self, spec: RunSpec) -> None:
        """Choose device and precision. Raises Unsupported for what only Lightning's loop can do."""
        self._spec, self._place = spec, Place.of(spec)
        self.device = _device(str(spec.config["accelerator"]), self._place)
        self.precision = _precision(spec, self.device)
        join_group(self._place, self.device.type, int(spec.config["num_nodes"]))
        self.strategy = "ddp" if spec.world_size > 1 else "single_device"
        self.optimizer, self.accumulate = "none", 1
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self._log = RawLog(self.device)
        self._timer: PhaseTimer | None = None
        self._parallel: DistributedDataParallel | None = None
        self._without_exchange = ExitStack()

    @property
    def logged(self) -> dict[str, float]:
        """What the module logged, each name's mean since the last phase began."""
        return self._log.means(self.strategy == "ddp")

    def watch(self, timer: PhaseTimer) -> None:
        """Put `timer` around the parts of a step."""
        self._timer = timer

    def stop_exchange(self) -> bool:
        """Enter `no_sync` for the rest of this module's life."""
        assert self._parallel is not None, "one rank exchanges nothing"
        self._without_exchange.enter_context(self._parallel.no_sync())
        return True

    def train(self, listener: Listener) -> None:
        """Train a fresh module, seeded by the run, until `listener` has enough."""
        seed_all(self._spec.run.seed)
        self._module = build_module(self._spec.config)
        self._log.listen_to(self._module)
        self._data = build_training_data(self._spec.config, self._spec.run.seed, self.device)
        set_up(self._data, self._place)
        self._module.to(self.device, CAST.get(self.precision, torch.float32)).train()
        optimizer = _one_optimizer(self._module)
        self.optimizer = type(optimizer).__name__
        batches = self._batches(one_loader(self._data, self._place))
        parts = self._parts(_Step(self._module), optimizer)
        listener.begin()
        if self._timer is None:
            self._steps(parts, batches, listener)
        else:
            self._steps(parts.timed(self._timer), self._timer.fetching(batches), listener)

    def validate(self) -> dict[str, float] | None:
        """Return what the trained module logs over the validation set; None where the data has none."""
        if type(self._data).val_dataloader is pl.LightningDataModule.val_dataloader:
            return None
        self._log.validate()
        self._module.eval()
        with torch.no_grad(), self._autocast()():
            for number, batch in enumerate(self._data.val_dataloader()):
                self._module.validation_step(moved(batch, self.device, CAST.get(self.precision)), number)
        return self.logged

    def _steps(self, parts: _Parts, batches: Iterable[Any], listener: Listener) -> None:
        batch_size = int(self._spec.config["batch_size"])
        for number, batch in enumerate(batches):
            loss = parts.forward(parts.move(batch), number)
            parts.backward(loss)
            parts.update()
            if number == 0:
                self.example = on_meta(batch)
            if listener.step_done(count_samples(batch, number == 0, batch_size), loss.detach()):
                return

    def _parts(self, step: nn.Module, optimizer: torch.optim.Optimizer) -> _Parts:
        if self._place.size > 1:
            devices = [self.device.index] if self.device.type == "cuda" else None
            step = self._parallel = DistributedDataParallel(step, device_ids=devices)
        autocast, cast = self._autocast(), CAST.get(self.precision)
        scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "16-mixed")

        def forward(batch: Any, number: int) -> Any:
            with autocast():
                return loss_in(step(batch, number))

        def backward(loss: Any) -> None:
            scaler.scale(loss).backward()

        def update() -> None:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        return _Parts(lambda batch: moved(batch, self.device, cast), forward, backward, update)

    def _autocast(self) -> Callable[[], AbstractContextManager[Any]]:
        dtype = AUTOCAST.get(self.precision)
        return (lambda: torch.autocast(self.device.type, dtype=dtype)) if dtype is not None else nullcontext

    def _batches(self, loader: DataLoader[Any]) -> Iterator[Any]:
        passes = steps = 0
        while True:
            if isinstance(loader.sampler, DistributedSampler):
                loader.sampler.set_epoch(passes)
            before = steps
            for batch in loader:
                steps += 1
                yield batch
            if steps == before:
                raise InputError("the training loader is empty: lower batch_size, or keep short batches")
            self.epoch_ends.append(steps)
            passes += 1


@dataclass(frozen=True)
class _Parts:
    """What a step does, in order."""

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
    """The module's training step as a forward, which is what DistributedDataParallel can wrap."""

    def __init__(self, module: pl.LightningModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Any, number: int) -> Any:
        return self.module.training_step(batch, number)


def _device(accelerator: str, place: Place) -> torch.device:
    if accelerator == "auto":
        accelerator = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    if accelerator == "cuda":
        if not torch.cuda.is_available():
            raise Unsupported("accelerator=cuda: torch finds no CUDA device here")
        torch.cuda.set_device(place.local_rank)
        return torch.device("cuda", place.local_rank)
    if accelerator == "mps" and not torch.backends.mps.is_available():
        raise Unsupported("accelerator=mps: torch finds no Apple GPU here")
    return torch.device(accelerator)


def _precision(spec: RunSpec, device: torch.device) -> str:
    precision = str(spec.config["precision"])
    if precision not in AUTOCAST and precision not in CAST:
        raise Unsupported(f"loop=raw has no precision={precision}; it has {', '.join([*CAST, *AUTOCAST])}")
    if precision == "16-mixed" and device.type == "cpu":
        raise Unsupported("precision=16-mixed is bf16-mixed on a CPU, which is another cell")
    refused = {name for name, value in (spec.config.get("trainer") or {}).items() if value and name not in _HARMLESS}
    if refused or int((spec.config.get("trainer") or {}).get("accumulate_grad_batches") or 1) > 1:
        names = ", ".join(sorted(refused)) or "accumulate_grad_batches"
        raise Unsupported(f"loop=raw knows no trainer.{names}: use loop=lightning, or leave it out")
    return precision


_HARMLESS = {"strategy", "accumulate_grad_batches", "use_distributed_sampler", "log_every_n_steps"}
"""Trainer arguments that a bare loop may ignore, or that are checked apart."""


def _one_optimizer(module: pl.LightningModule) -> torch.optim.Optimizer:
    found: Any = module.configure_optimizers()
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    if isinstance(found, torch.optim.Optimizer) and module.automatic_optimization:
        return found
    raise Unsupported(
        "loop=raw drives one optimiser without a schedule; this module's configure_optimizers gives something else: "
        "use loop=lightning"
    )
