"""A model's size, its operations per sample, its forward pass, its device's ceiling, and its utilisation."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from accelsweep.devices.clock import Clock, TimedDevice, monotonic
from accelsweep.devices.kinds import kind_of, timed_device
from accelsweep.measure.breakdown import (
    PhaseTimer,
    ProbePass,
    breakdown_of,
    by_hand,
    share_metrics,
    standstill,
    steps_of_pass,
)
from accelsweep.measure.flops import (
    Ceiling,
    NotCounted,
    forward_flops,
    forward_traits,
    matmul_ceiling,
    number_format,
    remembered,
    torch_product,
    training_flops,
    utilisation_metrics,
)
from accelsweep.measure.window import group_of
from accelsweep.metrics import Metric
from accelsweep.results import Breakdown, Effective, Traits
from accelsweep.worker.errors import classify, said
from accelsweep.worker.loops.factory import make_loop
from accelsweep.worker.loops.loop import NoExample, loss_in
from accelsweep.worker.loops.raw_parts import numbered
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.instantiate import build_module

COUNTED = (
    "parameters",
    "model_flops_per_sample",
    "model_flops_per_second",
    "matmul_ceiling_flops_per_second",
    "mfu",
    "mfu_of_datasheet",
)
"""The names of the metrics that `count_operations` returns."""

AnswerBatch = Callable[[Any, Any], Any]
"""A module's treatment of a batch that it does not train on."""


def count_operations(
    spec: RunSpec,
    device: torch.device,
    example: Any,
    effective: Effective,
    samples_per_second: float,
    answer: AnswerBatch | None = None,
) -> dict[str, Metric]:
    """Return `parameters` and the metrics of `utilisation_metrics`. `example` is a batch on the meta device.

    The operations are those of a training step, or of `answer` where that is given.
    """
    form = number_format(effective.precision, device.type)
    ceiling: Ceiling | str = f"no matmul is known for precision={effective.precision}"
    if form is not None:
        ceiling = _ceiling(spec, device, form, effective)
    flops = flops_per_sample(spec, example, effective.batch_size, answer)
    what = "training step, recomputation excluded" if answer is None else "one answer"
    utilisation = utilisation_metrics(flops, ceiling, samples_per_second, effective.device_names, form, what)
    return {"parameters": parameters(spec), **utilisation}


def parameters(spec: RunSpec) -> Metric:
    """Return how many numbers the module learns, those that are shared once, or why they cannot be counted."""
    try:
        counted = sum(part.numel() for part in _on_meta(spec).parameters() if part.requires_grad)
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        reason = f"not counted: on the meta device the module raised {type(error).__name__}: {said(error)}"[:300]
        return Metric(value=None, unit="parameters", reason=reason)
    return Metric(value=float(counted), unit="parameters", provenance="counted")


def flops_per_sample(spec: RunSpec, example: Any, samples: int, answer: AnswerBatch | None = None) -> float | str:
    """Return the operations of one training step (or answer) per sample, or `not counted: ` and the reason."""
    if isinstance(example, NoExample):
        return f"not counted: {example.reason}"
    try:
        module = _on_meta(spec).train()
        module.log = module.log_dict = _log_nothing
        if answer is None:
            flops = training_flops(lambda: loss_in(numbered(module.training_step)(example, 0)))
        else:
            flops = forward_flops(lambda: answer(module.eval(), example))
    except NotCounted as error:
        return f"not counted: {error}"
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return f"not counted: on the meta device the step raised {type(error).__name__}: {said(error)}"[:300]
    if flops == 0:
        return "not counted: the step holds no operation with a known formula"
    return flops / samples


def count_traits(spec: RunSpec, example: Any, samples: int, answer: AnswerBatch | None = None) -> Traits | str:
    """Return what a forward pass does per sample, or `not counted: ` and the reason. `example` is on the meta device.

    The pass is that of a training step, which computes the loss too, or `answer` where that is given.
    """
    if isinstance(example, NoExample):
        return f"not counted: {example.reason}"
    try:
        module = _on_meta(spec).train()
        module.log = module.log_dict = _log_nothing
        if answer is None:
            return forward_traits(lambda: numbered(module.training_step)(example, 0), module, samples)
        return forward_traits(lambda: answer(module.eval(), example), module, samples)
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return f"not counted: on the meta device the step raised {type(error).__name__}: {said(error)}"[:300]


def _on_meta(spec: RunSpec) -> Any:
    """Return the run's module with weights that have shapes and no values."""
    with torch.device("meta"):
        module = build_module(spec.config)
        module.configure_model()
    return module.to("meta")


def _log_nothing(*_: Any, **__: Any) -> None:
    pass


def _ceiling(spec: RunSpec, device: torch.device, form: str, effective: Effective) -> Ceiling | str:
    key = f"{effective.device_names[0]}, {form}, {effective.threads_per_rank} threads"
    path = None if spec.ceilings is None else Path(spec.ceilings)
    try:
        return remembered(path, key, lambda: matmul_ceiling(torch_product(device, form), timed_device(device)))
    except Exception as error:  # the kinds of device raise errors of different classes, and `classify` knows them
        if classify(error) != "out_of_memory":
            raise
        return "the device has no memory left for the product of two matrices"


# The share of a step's time that goes into matrix products: a profiled training of its own, after the window.

STEPS_BEFORE_PROFILED = 2
"""Steps before the profiled ones: first calls and allocations."""

PRODUCT = re.compile(
    r"\w+::_*(\w*_)?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|addr|dot|matmul|linear(_pointwise|_backward)?)"
    r"|\w+::\w*(convolution|conv[123]d|rnn|attention)\w*"
)
"""Names of operators that multiply matrices, in torch's own namespaces and in those of its libraries."""


class _Pass:
    """A listener that profiles some steps and then has enough."""

    def __init__(self, steps: int, device: TimedDevice, activity: ProfilerActivity, clock: Clock = monotonic) -> None:
        self._steps, self._device, self._clock = steps, device, clock
        self._on_host = activity is ProfilerActivity.CPU
        self._profiler = profile(activities=list(dict.fromkeys((ProfilerActivity.CPU, activity))))
        self._done, self._began, self.seconds = 0, 0.0, 0.0

    def begin(self) -> None:
        """Nothing: the first steps do not count."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; True once enough were profiled."""
        del samples, loss
        self._done += 1
        if self._done == STEPS_BEFORE_PROFILED:
            self._device.synchronise()
            self._profiler.start()
            self._began = self._clock()
        if self._done < STEPS_BEFORE_PROFILED + self._steps:
            return False
        self._device.synchronise()
        self.seconds = self._clock() - self._began
        self._profiler.stop()
        return True

    def in_products(self) -> float:
        """Return the seconds of all products, on the device."""
        time = "self_cpu_time_total" if self._on_host else "self_device_time_total"
        rows = [row for row in self._profiler.key_averages() if row.device_type.name == "CPU"]
        return sum(float(getattr(row, time)) for row in rows if PRODUCT.fullmatch(row.key)) / 1e6


def matmul_share(spec: RunSpec) -> dict[str, Metric]:
    """Train `measure.matmul_steps` steps under torch's profiler; return their `matmul_time_share`, or nothing.

    Nothing where the key is null. Raises the errors of the user's code.
    """
    steps = spec.config.measure.matmul_steps
    if steps is None:
        return {}
    loop = make_loop(spec)
    activity = kind_of(loop.device.type).profiler_activity
    if activity is None:
        reason = f"torch's profiler sees no kernels of a device of kind {loop.device.type}"
        return {"matmul_time_share": Metric(value=None, unit="1", reason=reason)}
    listener = _Pass(-(-steps // loop.accumulate) * loop.accumulate, timed_device(loop.device), activity)
    loop.drive(listener)
    shares = group_of(spec.world_size).gather(listener.in_products() / listener.seconds)
    scope = f"mean of all ranks, {steps} profiled steps"
    return {
        "matmul_time_share": Metric(value=sum(shares) / len(shares), unit="1", scope=scope, provenance="torch.profiler")
    }


# The probe pass of a run and the breakdown of a step that follows from it.


@dataclass(frozen=True)
class Probed:
    """The result of the pass."""

    breakdown: Breakdown | None
    metrics: dict[str, Metric]


def release(device: torch.device) -> None:
    """Free the memory that an earlier phase left on the device, so that no phase has less than the window had."""
    gc.collect()
    kind_of(device.type).empty_cache(device)


def probe(spec: RunSpec, step_seconds: float) -> Probed:
    """Train at most `measure.probe_steps` steps and break them down. Raises the errors of the user's code.

    `step_seconds` is the pace of the window, the same on every rank. The pass looks at no more steps than fit into
    `measure.min_seconds`.
    """
    rules = spec.config.measure
    if rules.probe_steps is None:
        return Probed(None, share_metrics("not asked for: measure.probe_steps is null"))
    loop = make_loop(spec)
    steps = steps_of_pass(rules.probe_steps, rules.min_seconds, step_seconds, loop.accumulate)
    timer = PhaseTimer(timed_device(loop.device))
    listener = ProbePass(timer, steps, loop.stop_exchange if spec.world_size > 1 else None)
    loop.watch(timer)
    with by_hand(timer):
        loop.drive(listener)
    ranks = group_of(spec.world_size).gather(listener.halves)
    if (why := standstill(ranks)) is not None:
        return Probed(None, share_metrics(why))
    found = breakdown_of(ranks, steps)
    return Probed(found, share_metrics(found))
