"""`task: inference`: answers queries with one copy of a module per rank, in the scenarios defined by MLPerf.

The scenarios are from V. J. Reddi et al., "MLPerf Inference Benchmark" (ISCA 2020), section IV. A query is one batch.
In `offline`, all queries are available from the start, and samples per second are measured. `single_stream` sends each
query once the previous one has been answered and measures latencies: the time from passing the batch to the module's
hooks until the response is complete. `multi_stream` does the same with several samples per query. `server` is a
separate task.
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
from accelsweep.measure.timed_window import percentile
from accelsweep.metrics import Metric, not_reached
from accelsweep.results import ANY_FAILURE, ErrorKind
from accelsweep.run_config import Measure
from accelsweep.worker.loops.execution import ModuleExecution
from accelsweep.worker.loops.loop import StepListener, to_meta
from accelsweep.worker.loops.sample_count import SampleCounter
from accelsweep.worker.loops.token_count import TokenCounter
from accelsweep.worker.loops.trainer_replacement import (
    CAST,
    attach_trainer_stub,
    autocast_factory,
    batch_mover,
    checked_precision,
    endless_batches,
    overridden_hook,
    rank_device,
    rank_loader,
    refuse_trainer_arguments,
    run_setup_hooks,
    with_batch_idx,
)
from accelsweep.worker.model_probes import FLOPS_METRICS, count_traits, flops_metrics
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import build_module, build_training_data

SEQUENTIAL_SCENARIOS = ("single_stream", "multi_stream")
"""The scenarios in which each query is sent once the previous query has been answered."""

QUERY_PERCENTILES = {"query_seconds_p50": 0.5, "query_seconds_p90": 0.9, "query_seconds_p99": 0.99}


class InferenceDriver:
    """A driver whose steps are queries to a fresh module in evaluation mode, without gradients."""

    name, strategy, optimizer, accumulate = "inference", "one copy per rank", "none", 1
    optimizer_steps = None

    def __init__(self, spec: RunSpec, place: RankPlace, clock: Clock = monotonic) -> None:
        """Select device and precision. Raises Unsupported if this machine does not support them."""
        self._spec, self._place, self._clock = spec, place, clock
        self.device = rank_device(spec.config.accelerator, place)
        self.precision = checked_precision(spec, self.device, "task=inference")
        refuse_trainer_arguments(spec, "task=inference")
        init_process_group(place, spec, self.device.type)
        self.heartbeat = Heartbeat(spec.heartbeat(place.rank))
        self.epoch_ends: list[int] = []
        self.example: Any = None
        self.execution, self.tokens = ModuleExecution(spec.config, training=False), TokenCounter()
        self.query_seconds: list[float] = []
        self._sequential = spec.config.measure.scenario in SEQUENTIAL_SCENARIOS

    def drive(self, listener: StepListener) -> None:
        """Answer queries until `listener` ends the phase."""
        self.module, loader, move = self.prepared()
        module = self.module
        answer, counter = (
            predict_step_of(module),
            SampleCounter(self._spec.config.first_batch_size, self._spec.world_size),
        )
        autocast, synchronise = autocast_factory(self.precision, self.device), timed_device(self.device).synchronise
        with self.execution, torch.inference_mode():
            listener.begin()
            for number, batch in enumerate(endless_batches(loader, self.epoch_ends.append, self.heartbeat)):
                began = self._clock()
                moved = move(batch)
                with autocast():
                    answer(moved, number)
                if self._sequential:
                    synchronise()
                    self.query_seconds.append(self._clock() - began)
                if number == 0:
                    self.example = to_meta(moved)
                    self.execution.stop()
                    self.execution.check()
                self.tokens.add(moved, module)
                self.tokens.end_step()
                enough = listener.step_done(counter.count(batch, loader, module), None)
                self.heartbeat.step(pauses=enough)
                if enough:
                    return

    def prepared(self) -> tuple[pl.LightningModule, DataLoader[Any], Callable[[Any], Any]]:
        """Return the module, the loader of queries, and a function that moves a batch to the device."""
        config, seed = self._spec.config, self._spec.run.seed
        seed_all(seed)
        module = build_module(config, self._spec.axes)
        data = build_training_data(config, seed, self.device, module)
        attach_trainer_stub(module, data, self._place, self._spec, "task=inference")
        loader = rank_loader(self._queries(data, module), self._place)
        cast = CAST.get(self.precision)
        module.to(self.device, cast or torch.float32).eval()
        return module, loader, batch_mover(module, data, self.device, cast)

    def _queries(self, data: pl.LightningDataModule, module: pl.LightningModule) -> Any:
        """Return the prediction loader, or the training loader if there is none or `measure.fake_loader` is set."""
        predict_dataloader = overridden_hook("predict_dataloader", data)
        if predict_dataloader is None or self._spec.config.measure.fake_loader:
            run_setup_hooks(data, module, self._place)
            return data.train_dataloader()
        run_setup_hooks(data, module, self._place, "predict")
        return predict_dataloader()


def predict_step_of(module: pl.LightningModule) -> Callable[[Any, int], Any]:
    """Return the module's `predict_step`, or else its forward pass on the batch's input."""
    if type(module).predict_step is not pl.LightningModule.predict_step:
        return with_batch_idx(module.predict_step)
    if type(module).forward is pl.LightningModule.forward:
        raise InputError(
            f"task=inference: {type(module).__name__} has neither predict_step nor forward; define one of them"
        )
    return lambda batch, _: module(input_part(batch))


def input_part(batch: Any) -> Any:
    """Return the first part of a tuple or list (inputs, targets, ...); anything else is returned unchanged."""
    return batch[0] if isinstance(batch, list | tuple) and batch and not is_packed(batch) else batch


class Inference:
    """The inference task, which counts the samples processed in the window."""

    tolerated_failures: Collection[ErrorKind] = ANY_FAILURE
    rest: tuple[str, ...] = ()
    """Names of the metrics that a subclass measures in `after_window`."""

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` specifies the module; `place` identifies this rank."""
        self._spec, self._place = spec, place
        self._driver: InferenceDriver | None = None
        self._example: Any = None

    def driver(self) -> InferenceDriver:
        """Return the driver that processes the queries."""
        self._driver = InferenceDriver(self._spec, self._place)
        self._device = self._driver.device
        return self._driver

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add the query latencies."""
        driver, self._driver = self._driver, None
        assert driver is not None, "driver() comes first"
        self._example = driver.example
        report.metrics |= latency_metrics(
            driver.query_seconds[measured.window.warmup_steps :], self._spec.config.measure
        )
        report.metrics |= not_reached((*FLOPS_METRICS, *self.rest))

    def after_window(self, report: RankReport) -> None:
        """Count the operations in a query."""
        rate, effective = report.metrics["samples_per_second"].value, report.effective
        if self._place.rank == 0 and effective is not None and rate is not None:
            report.metrics |= flops_metrics(self._spec, self._device, self._example, effective, rate, predict)
            report.traits = count_traits(self._spec, self._example, effective.batch_size, predict)


def predict(module: pl.LightningModule, batch: Any) -> Any:
    """Run the prediction step on a meta-device batch, so that its operations can be counted."""
    return predict_step_of(module)(batch, 0)


def latency_metrics(seconds: list[float], rules: Measure) -> dict[str, Metric]:
    """Return query latency percentiles, or the reason why the scenario does not measure latencies."""
    scope = "rank 0, one query at a time"
    if rules.scenario in SEQUENTIAL_SCENARIOS:
        return {name: percentile(seconds, share, "queries", scope) for name, share in QUERY_PERCENTILES.items()}
    reason = f"{rules.scenario} measures no latencies in the window; measure.scenario=single_stream does"
    return {name: Metric(value=None, unit="s", reason=reason) for name in QUERY_PERCENTILES}


def first_samples(batches: Iterator[Any], size: int, count: int) -> list[Any]:
    """Return the first `count` individual samples from `batches` of `size` samples.

    Raises the same errors as `split_batch`.
    """
    return list(islice(chain.from_iterable(split_batch(batch, size) for batch in batches), count))


def split_batch(batch: Any, size: int) -> list[Any]:
    """Return the samples in a batch of tensors, tuples, lists or mappings. Raises Unsupported for anything else."""
    nested = isinstance(batch, Tensor) and batch.is_nested
    if isinstance(batch, Tensor) and not nested and batch.shape[:1] == (size,):
        return list(batch)
    if isinstance(batch, Mapping):
        parts = {key: split_batch(value, size) for key, value in batch.items()}
        return [{key: values[number] for key, values in parts.items()} for number in range(size)]
    if isinstance(batch, list | tuple) and batch and not is_packed(batch):
        return [list(sample) for sample in zip(*(split_batch(part, size) for part in batch), strict=True)]
    shape = f" of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) and not nested else ""
    raise Unsupported(
        f"measure.scenario=server needs single samples, but a batch of {size} contains a {type(batch).__name__}{shape}"
        ", which cannot be split into samples. Use batches of tensors whose first dimension is the sample dimension"
    )


def collate(samples: Sequence[Any]) -> Any:
    """Return the samples as one batch."""
    return default_collate(list(samples))
