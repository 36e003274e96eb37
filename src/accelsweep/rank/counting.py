"""A model's size, its operations per sample, its forward pass, its device's ceiling, and its utilisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from accelsweep.core.recorded.record import Effective, Metric
from accelsweep.core.recorded.traits import Traits
from accelsweep.measure.ceiling import Ceiling, matmul_ceiling, number_format, remembered, torch_product
from accelsweep.measure.devices.kinds import measured_device
from accelsweep.measure.metrics.flops import NotCounted, forward_flops, training_flops
from accelsweep.measure.metrics.traits import forward_traits
from accelsweep.measure.metrics.utilisation import utilisation_metrics
from accelsweep.rank.errors import classify, said
from accelsweep.rank.loops.loop import NoExample, loss_in
from accelsweep.rank.loops.raw_module import numbered
from accelsweep.rank.spec import RunSpec
from accelsweep.workloads.building.build import build_module

COUNTED = (
    "parameters",
    "model_flops_per_sample",
    "model_flops_per_second",
    "matmul_ceiling_flops_per_second",
    "mfu",
    "mfu_of_datasheet",
)
"""The names of the metrics that `count_operations` returns."""

AnswerBatch = Callable[[pl.LightningModule, Any], Any]
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
        module.log = module.log_dict = _log_nothing  # type: ignore[method-assign]
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
        module.log = module.log_dict = _log_nothing  # type: ignore[method-assign]
        if answer is None:
            return forward_traits(lambda: numbered(module.training_step)(example, 0), module, samples)
        return forward_traits(lambda: answer(module.eval(), example), module, samples)
    except Exception as error:  # noqa: BLE001  the user's code may fail on the meta device in any way
        return f"not counted: on the meta device the step raised {type(error).__name__}: {said(error)}"[:300]


def _on_meta(spec: RunSpec) -> pl.LightningModule:
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
        return remembered(path, key, lambda: matmul_ceiling(torch_product(device, form), measured_device(device)))
    except Exception as error:  # the kinds of device raise errors of different classes, and `classify` knows them
        if classify(error) != "out_of_memory":
            raise
        return "the device has no memory left for the product of two matrices"
