"""Probes a model after the window: parameters, operations, MFU, matmul share and step time breakdown."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch.profiler import ProfilerActivity, profile

from accelsweep.devices.clock import Clock, TimedDevice, monotonic
from accelsweep.devices.kinds import kind_of, timed_device
from accelsweep.measure.breakdown import (
    PhaseTimer,
    ProbePass,
    breakdown_metrics,
    breakdown_of,
    idle_reason,
    probe_steps,
    time_manual_optimization,
)
from accelsweep.measure.flops import (
    Ceiling,
    NotCounted,
    cached_ceiling,
    cudnn_format,
    forward_flops,
    forward_traits,
    matmul_ceiling,
    number_format,
    torch_matmul,
    training_flops,
    utilisation_metrics,
)
from accelsweep.measure.operators import is_matmul
from accelsweep.measure.timed_window import group_of
from accelsweep.metrics import Metric
from accelsweep.results import Breakdown, Effective, Traits
from accelsweep.worker.error_classification import classify, message_of
from accelsweep.worker.loops import make_loop
from accelsweep.worker.loops.loop import NoExample, extract_loss
from accelsweep.worker.loops.trainer_replacement import with_batch_idx
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import build_module

FLOPS_METRICS = (
    "parameters",
    "model_flops_per_sample",
    "model_flops_per_second",
    "matmul_ceiling_flops_per_second",
    "mfu",
    "mfu_of_datasheet",
)
"""The names of the metrics that `flops_metrics` returns."""

Predict = Callable[[Any, Any], Any]
"""A function (module, batch) that performs one step of inference."""


def flops_metrics(
    spec: RunSpec,
    device: torch.device,
    example: Any,
    effective: Effective,
    samples_per_second: float,
    predict: Predict | None = None,
) -> dict[str, Metric]:
    """Return `parameters` and the metrics of `utilisation_metrics`. `example` is a batch on the meta device.

    Operations are counted for a training step, or for `predict` if given.
    """
    form = number_format(effective.precision, device.type)
    ceiling: Ceiling | str = f"no matmul format is known for precision={effective.precision}"
    if form is not None:
        ceiling = _ceiling(spec, device, form, effective)
    counted = count_flops(spec, example, effective.batch_size, predict)
    flops = counted if isinstance(counted, str) else counted.per_sample
    what = "training step, recomputation excluded" if predict is None else "one answer"
    utilisation = utilisation_metrics(flops, ceiling, samples_per_second, effective.device_names, form, what)
    layers = () if isinstance(counted, str) else counted.cudnn_layers
    formats = {cudnn_format(effective.precision, device.type, layer) for layer in layers} - {form}
    if formats:
        names = " and ".join(map(str, formats))
        reason = f"withheld: cuDNN's layers ran in {names} and matrix products in {form}, so neither peak applies"
        for name in ("mfu", "mfu_of_datasheet"):
            utilisation[name] = Metric(value=None, unit="1", reason=reason, scope=utilisation[name].scope)
    return {"parameters": parameters(spec), **utilisation}


def parameters(spec: RunSpec) -> Metric:
    """Return the number of trainable parameters, counting shared ones once, or the reason why it is unknown."""
    try:
        count = sum(part.numel() for part in _meta_module(spec).parameters() if part.requires_grad)
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return Metric(value=None, unit="parameters", reason=_not_counted("module", error))
    return Metric(value=float(count), unit="parameters", provenance="counted")


@dataclass(frozen=True)
class StepFlops:
    """The operations per sample, and the kinds of layers in the model that cuDNN runs, if any."""

    per_sample: float
    cudnn_layers: tuple[Literal["conv", "rnn"], ...]


def count_flops(spec: RunSpec, example: Any, samples: int, predict: Predict | None = None) -> StepFlops | str:
    """Count the operations in a training step or in `predict`; if this fails, return `not counted: ` and the reason."""
    if isinstance(example, NoExample):
        return f"not counted: {example.reason}"
    try:
        module = _meta_module(spec)
        if predict is None:
            flops = training_flops(lambda: extract_loss(with_batch_idx(module.training_step)(example, 0)))
        else:
            flops = forward_flops(lambda: predict(module.eval(), example))
    except NotCounted as error:
        return f"not counted: {error}"
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return _not_counted("step", error)
    if flops.total == 0:
        return "not counted: no operation in the step has a known formula"
    layers: list[Literal["conv", "rnn"]] = ["conv"] if flops.convolution else []
    if any(isinstance(part, torch.nn.RNNBase) for part in module.modules()):
        layers.append("rnn")
    return StepFlops(flops.total / samples, tuple(layers))


def count_traits(spec: RunSpec, example: Any, samples: int, predict: Predict | None = None) -> Traits | str:
    """Return the per-sample traits of a forward pass; if this fails, return `not counted: ` and the reason.

    The forward pass is that of a training step, including the loss, or `predict`. `example` is a batch on the meta
    device.
    """
    if isinstance(example, NoExample):
        return f"not counted: {example.reason}"
    try:
        module = _meta_module(spec)
        if predict is None:
            return forward_traits(lambda: with_batch_idx(module.training_step)(example, 0), module, samples)
        return forward_traits(lambda: predict(module.eval(), example), module, samples)
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return _not_counted("step", error)


def _not_counted(what: str, error: Exception) -> str:
    return f"not counted: the {what} raised {type(error).__name__} on the meta device: {message_of(error)}"[:300]


def _meta_module(spec: RunSpec) -> Any:
    """Return the run's module in training mode on the meta device (shapes but no values), with logging disabled."""
    module: Any
    if spec.config.loop == "entry":
        from accelsweep.worker.loops.entry_point import running_loop

        module = running_loop().meta_module()
    else:
        with torch.device("meta"):
            module = build_module(spec.config)
            module.configure_model()
    module = module.to("meta").train()
    module.log = module.log_dict = lambda *_, **__: None
    return module


def _ceiling(spec: RunSpec, device: torch.device, form: str, effective: Effective) -> Ceiling | str:
    key = f"{effective.device_names[0]}, {form}, {effective.threads_per_rank} threads"
    path = None if spec.ceiling_cache is None else Path(spec.ceiling_cache)
    try:
        return cached_ceiling(path, key, lambda: matmul_ceiling(torch_matmul(device, form), timed_device(device)))
    except Exception as error:  # device backends raise different types, which `classify` handles
        if classify(error) != "out_of_memory":
            raise
        return "the device ran out of memory while multiplying two matrices"


PROFILER_WARMUP_STEPS = 2
"""The number of steps before profiling starts, so that the profile excludes first calls and allocations."""


class _ProfiledSteps:
    """A listener that profiles a given number of steps, then ends the phase."""

    def __init__(self, steps: int, device: TimedDevice, activity: ProfilerActivity, clock: Clock = monotonic) -> None:
        self._steps, self._device, self._clock = steps, device, clock
        self._on_host = activity is ProfilerActivity.CPU
        self._profiler = profile(activities=list(dict.fromkeys((ProfilerActivity.CPU, activity))))
        self._done, self._began, self.seconds = 0, 0.0, 0.0

    def begin(self) -> None:
        """Do nothing: the first steps are not profiled."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; return True once enough steps have been profiled."""
        del samples, loss
        self._done += 1
        if self._done == PROFILER_WARMUP_STEPS:
            self._device.synchronise()
            self._profiler.start()
            self._began = self._clock()
        if self._done < PROFILER_WARMUP_STEPS + self._steps:
            return False
        self._device.synchronise()
        self.seconds = self._clock() - self._began
        self._profiler.stop()
        return True

    def matmul_seconds(self) -> float:
        """Return the device time spent in matrix products."""
        time = "self_cpu_time_total" if self._on_host else "self_device_time_total"
        rows = [row for row in self._profiler.key_averages() if row.device_type.name == "CPU"]
        return sum(float(getattr(row, time)) for row in rows if is_matmul(row.key)) / 1e6


def matmul_share(spec: RunSpec) -> dict[str, Metric]:
    """Train `measure.matmul_steps` steps under torch's profiler and return `matmul_time_share`; {} without that key.

    Raises errors from the user's code.
    """
    steps = spec.config.measure.matmul_steps
    if steps is None:
        return {}
    loop = make_loop(spec)
    activity = kind_of(loop.device.type).profiler_activity
    if activity is None:
        reason = f"torch's profiler does not record kernels on devices of kind {loop.device.type}"
        return {"matmul_time_share": Metric(value=None, unit="1", reason=reason)}
    listener = _ProfiledSteps(-(-steps // loop.accumulate) * loop.accumulate, timed_device(loop.device), activity)
    loop.drive(listener)
    shares = group_of(spec.world_size).gather(listener.matmul_seconds() / listener.seconds)
    scope = f"mean of all ranks, {steps} profiled steps"
    return {
        "matmul_time_share": Metric(value=sum(shares) / len(shares), unit="1", scope=scope, provenance="torch.profiler")
    }


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe pass: the step time breakdown, if measured, and its metrics."""

    breakdown: Breakdown | None
    metrics: dict[str, Metric]


def release_memory(device: torch.device) -> None:
    """Free device memory still held by an earlier phase, so that each phase has as much available as the window had."""
    gc.collect()
    kind_of(device.type).empty_cache(device)


def measure_breakdown(spec: RunSpec, step_seconds: float) -> ProbeResult:
    """Train at most `measure.probe_steps` steps and break down their time by phase. Raises errors from the user's code.

    `step_seconds` is the window's mean step time, which is the same on every rank. It limits the pass to as many steps
    as fit into `measure.min_seconds`.
    """
    rules = spec.config.measure
    if rules.probe_steps is None:
        return ProbeResult(None, breakdown_metrics("not requested: measure.probe_steps is null"))
    loop = make_loop(spec)
    steps = probe_steps(rules.probe_steps, rules.min_seconds, step_seconds, loop.accumulate)
    timer = PhaseTimer(timed_device(loop.device))
    listener = ProbePass(timer, steps, loop.disable_gradient_sync if spec.world_size > 1 else None)
    loop.time_phases(timer)
    with time_manual_optimization(timer):
        loop.drive(listener)
    ranks = group_of(spec.world_size).gather(listener.halves)
    if (reason := idle_reason(ranks)) is not None:
        return ProbeResult(None, breakdown_metrics(reason))
    breakdown = breakdown_of(ranks, steps)
    return ProbeResult(breakdown, breakdown_metrics(breakdown))
