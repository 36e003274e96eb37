"""`task: inference`: a module that answers queries, each rank with its own copy, after MLPerf's scenarios.

V. J. Reddi et al., "MLPerf Inference Benchmark" (ISCA 2020), section IV. `offline` has all queries at hand and counts
samples per second. `single_stream` sends the next query when the one before has been answered. It counts latencies:
from handing the batch to the module's hooks to the finished answer. A query is one batch. `multi_stream` is the same
with several samples a query. `server` has a task of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from accelsweep.devices.clock import Clock, monotonic
from accelsweep.devices.kinds import timed_device
from accelsweep.errors import InputError, Unsupported
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.batch_size import is_packed
from accelsweep.measure.window import percentile
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE, ErrorKind
from accelsweep.run_config import Measure
from accelsweep.worker.loops.loop import Listener, on_meta
from accelsweep.worker.loops.raw_parts import (
    CAST,
    autocast_of,
    device_of,
    do_without_trainer,
    endless,
    mover,
    numbered,
    one_loader,
    overridden,
    precision_of,
    refuse_trainer_arguments,
    set_up,
)
from accelsweep.worker.loops.sample_count import SampleCount
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.model_probes import COUNTED, count_operations, count_traits
from accelsweep.worker.rank_setup import RankPlace, join_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import build_module, build_training_data

ONE_BY_ONE = ("single_stream", "multi_stream")
"""The scenarios in which the next query is sent when the one before has been answered."""

QUERY_PERCENTILES = {"query_seconds_p50": 0.5, "query_seconds_p90": 0.9, "query_seconds_p99": 0.99}


class Answering:
    """Drives queries through a fresh module in evaluation mode, without gradients."""

    name, strategy, optimizer, accumulate = "inference", "one copy per rank", "none", 1
    optimizer_steps = None

    def __init__(self, spec: RunSpec, place: RankPlace, clock: Clock = monotonic) -> None:
        """Choose device and precision. Raises Unsupported where this machine does not have them."""
        self._spec, self._place, self._clock = spec, place, clock
        self.device = device_of(spec.config.accelerator, place)
        self.precision = precision_of(spec, self.device, "task=inference")
        refuse_trainer_arguments(spec, "task=inference")
        join_group(place, spec, self.device.type)
        self.heartbeat = Heartbeat(spec.heartbeat(place.rank))
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.query_seconds: list[float] = []
        self._one_by_one = spec.config.measure.scenario in ONE_BY_ONE

    def drive(self, listener: Listener) -> None:
        """Answer queries until `listener` has enough."""
        self.module, loader, move = self.prepared()
        module = self.module
        answer, count = answer_of(module), SampleCount(self._spec.config.batch_size, self._spec.world_size)
        autocast, synchronise = autocast_of(self.precision, self.device), timed_device(self.device).synchronise
        with torch.inference_mode():
            listener.begin()
            for number, batch in enumerate(endless(loader, self.epoch_ends.append, self.heartbeat)):
                asked_at = self._clock()
                there = move(batch)
                with autocast():
                    answer(there, number)
                if self._one_by_one:
                    synchronise()
                    self.query_seconds.append(self._clock() - asked_at)
                if number == 0:
                    self.example = on_meta(there)
                enough = listener.step_done(count.of(batch, loader, module), None)
                self.heartbeat.step(pauses=enough)
                if enough:
                    return

    def prepared(self) -> tuple[pl.LightningModule, DataLoader[Any], Callable[[Any], Any]]:
        """Return what answers, the queries, and what brings one to the device."""
        config, seed = self._spec.config, self._spec.run.seed
        seed_all(seed)
        module = build_module(config, self._spec.axes)
        data = build_training_data(config, seed, self.device, module)
        do_without_trainer(module, data, self._place, self._spec, "task=inference")
        loader = one_loader(self._queries(data, module), self._place)
        cast = CAST.get(self.precision)
        module.to(self.device, cast or torch.float32).eval()
        return module, loader, mover(module, data, self.device, cast)

    def _queries(self, data: pl.LightningDataModule, module: pl.LightningModule) -> Any:
        """Return the loader for prediction; that of training for fake data, and where there is no other."""
        predict_dataloader = overridden("predict_dataloader", data)
        if predict_dataloader is None or self._spec.config.measure.fake_loader:
            set_up(data, module, self._place)
            return data.train_dataloader()
        set_up(data, module, self._place, "predict")
        return predict_dataloader()


def answer_of(module: pl.LightningModule) -> Callable[[Any, int], Any]:
    """Return the module's own `predict_step`, or its forward pass on the batch's input."""
    if type(module).predict_step is not pl.LightningModule.predict_step:
        return numbered(module.predict_step)
    if type(module).forward is pl.LightningModule.forward:
        raise InputError(
            f"task=inference: {type(module).__name__} has neither predict_step nor forward; define one of them"
        )
    return lambda batch, _: module(input_of(batch))


def input_of(batch: Any) -> Any:
    """Return the first part of a tuple or list (inputs, targets, ...); anything else is the input as it is."""
    return batch[0] if isinstance(batch, list | tuple) and batch and not is_packed(batch) else batch


class Inference:
    """Answers queries; the window's samples are the answered ones."""

    rate_survives: Collection[ErrorKind] = ANY_FAILURE
    rest: tuple[str, ...] = ()
    """The metrics of a last phase."""

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` names the module, `place` this rank among the others."""
        self._spec, self._place = spec, place
        self._driver: Answering | None = None
        self._example: Any = None

    def driver(self) -> Answering:
        """Return the driver that answers the queries."""
        self._driver = Answering(self._spec, self._place)
        self._device = self._driver.device
        return self._driver

    def closed(self, measured: Measurement, account: Account) -> None:
        """Add the queries' latencies."""
        driver, self._driver = self._driver, None
        assert driver is not None, "driver() comes first"
        self._example = driver.example
        account.metrics |= latencies(driver.query_seconds[measured.window.warmup_steps :], self._spec.config.measure)
        account.metrics |= not_reached((*COUNTED, *self.rest))

    def after(self, account: Account) -> None:
        """Count the operations of an answer."""
        rate, effective = account.metrics["samples_per_second"].value, account.effective
        if self._place.rank == 0 and effective is not None and rate is not None:
            account.metrics |= count_operations(self._spec, self._device, self._example, effective, rate, answer)
            account.traits = count_traits(self._spec, self._example, effective.batch_size, answer)


def answer(module: pl.LightningModule, batch: Any) -> Any:
    """Return the answer of `module` to a batch: the work whose operations are counted."""
    return answer_of(module)(batch, 0)


def latencies(seconds: list[float], rules: Measure) -> dict[str, Metric]:
    """Return the percentiles of the seconds of each query; absent, with the reason, where no query was waited for."""
    scope = "rank 0, one query at a time"
    if rules.scenario in ONE_BY_ONE:
        return {name: percentile(seconds, share, "queries", scope) for name, share in QUERY_PERCENTILES.items()}
    reason = f"{rules.scenario} has no latencies in the window; measure.scenario=single_stream has"
    return {name: Metric(value=None, unit="s", reason=reason) for name in QUERY_PERCENTILES}


# Single samples out of a loader's batches, and batches out of single samples: what a server is asked for.


def samples_of(batches: Iterator[Any], size: int, count: int) -> list[Any]:
    """Return the first `count` samples of `batches`, each of which holds `size` samples along its first dimension.

    Raises Unsupported for batches that cannot be taken apart.
    """
    return list(islice(chain.from_iterable(taken_apart(batch, size) for batch in batches), count))


def taken_apart(batch: Any, size: int) -> list[Any]:
    """Return the `size` samples of a batch of tensors, in tuples, lists or mappings. Raises Unsupported for others."""
    nested = isinstance(batch, Tensor) and batch.is_nested
    if isinstance(batch, Tensor) and not nested and batch.shape[:1] == (size,):
        return list(batch)
    if isinstance(batch, Mapping):
        parts = {key: taken_apart(value, size) for key, value in batch.items()}
        return [{key: values[number] for key, values in parts.items()} for number in range(size)]
    if isinstance(batch, list | tuple) and batch and not is_packed(batch):
        return [list(sample) for sample in zip(*(taken_apart(part, size) for part in batch), strict=True)]
    shape = f" of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) and not nested else ""
    raise Unsupported(
        f"measure.scenario=server asks for single samples, and a batch of {size} holds a {type(batch).__name__}{shape}"
        ", which cannot be taken apart. Give batches of tensors whose first dimension counts samples"
    )


def together(samples: Sequence[Any]) -> Any:
    """Return the samples as one batch, with `torch.utils.data.default_collate`."""
    return default_collate(list(samples))
