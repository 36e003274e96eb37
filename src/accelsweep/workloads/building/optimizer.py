"""The config's optimiser, for modules that leave `configure_optimizers` to us: its learning rate follows the batch.

`lr_scaling` makes the learning rate a function of the global batch: the samples of an optimiser step on all ranks, with
all batches that it accumulates. So batch sizes and device counts can be compared at rates that suit them.
`warmup_steps` lets the rate grow at the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hydra.utils import instantiate
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from accelsweep.base.errors import InputError, Unsupported
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.learning_rate import LearningRate, Scaling

FACTORS: dict[Scaling, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda ratio: ratio,
    "sqrt": math.sqrt,
}
"""The factor of the learning rate, by `lr_scaling`, from the ratio of the global batch to the base batch.

`linear`: P. Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (2017), section 2.1: "when the
minibatch size is multiplied by k, multiply the learning rate by k". `sqrt`: A. Krizhevsky, "One weird trick for
parallelizing convolutional neural networks" (2014), section 5.1: multiply it by the square root of k, which keeps the
variance of the gradient's expectation.
"""


def scaled_lr(lr: float, scaling: Scaling, global_batch: int, base_batch: int | None) -> float:
    """Return the learning rate for a global batch, where `lr` is meant for one of `base_batch` samples."""
    if base_batch is None:
        raise InputError(
            f"optimizer.lr_scaling={scaling} needs optimizer.base_batch_size, the global batch that lr={lr} is for"
        )
    return lr * FACTORS[scaling](global_batch / base_batch)


def warmed_up(warmup_steps: int) -> Callable[[int], float]:
    """Return the share of the learning rate at optimiser step i (from 0): (i + 1) / warmup_steps, at most 1.

    The ramp is the linear one of Goyal et al. (section 2.2), who let it begin at the unscaled rate. Here it begins near
    zero, so that it means the same with every scaling.
    """
    return lambda step: min(1.0, (step + 1) / warmup_steps)


def scales(config: CellConfig) -> bool:
    """Return whether the learning rate of the config's optimiser follows the global batch."""
    return (config.learning_rate.lr_scaling or "none") != "none"


def configure(module: nn.Module, config: CellConfig, accumulated: Callable[[], int] = lambda: 1) -> Any:
    """Return what `configure_optimizers` returns for the config's `optimizer`: one over all trainable parameters.

    `accumulated` returns how many batches an optimiser step will hold; it is asked only where the rate follows that.
    With `warmup_steps` the optimiser comes with a schedule that is stepped after every optimiser step. Raises
    InputError for a setting that means nothing, Unsupported for a variant of the optimiser that this device or torch
    does not have.
    """
    settings = {key: value for key, value in (config.optimizer or {}).items() if key not in LearningRate.model_fields}
    rate = config.learning_rate
    scaling, warmup = rate.lr_scaling or "none", rate.warmup_steps or 0
    if scaling != "none":
        if "lr" not in settings:
            raise InputError(f"optimizer.lr_scaling={scaling} scales optimizer.lr, which is not set")
        global_batch = config.samples_per_step * accumulated()
        settings["lr"] = scaled_lr(float(settings["lr"]), scaling, global_batch, rate.base_batch_size)
    optimizer = _made(settings, [parameter for parameter in module.parameters() if parameter.requires_grad])
    if warmup < 1:
        return optimizer
    schedule = LambdaLR(optimizer, warmed_up(warmup))
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _made(settings: dict[str, Any], parameters: list[nn.Parameter]) -> Optimizer:
    if settings.get("fused") and settings.get("foreach"):
        raise Unsupported("optimizer.fused and optimizer.foreach exclude each other: torch runs one of the two")
    make: Callable[..., Optimizer] = instantiate({"_convert_": "all", **settings, "_partial_": True})
    try:
        return make(parameters)
    except RuntimeError as error:
        if "fused" in str(error):
            raise Unsupported(f"optimizer.fused=true is not possible here: {error}") from error
        raise
