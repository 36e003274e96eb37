"""Device and precision without a Trainer: for the raw training loop, for inference and for kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from accelsweep.base.errors import AbsentDevice, Unsupported
from accelsweep.core.cells.trainer import without_effect
from accelsweep.measure.devices.kinds import torch_kind
from accelsweep.rank.process import RankPlace
from accelsweep.rank.spec import RunSpec

AUTOCAST = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
CAST = {"32-true": torch.float32, "64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}


def device_of(accelerator: str, place: RankPlace) -> torch.device:
    """Return this rank's device. Raises AbsentDevice where torch finds none of that kind."""
    refuse_absent(accelerator)
    return torch_kind(accelerator).of_rank(place.local_rank)


def refuse_absent(accelerator: str) -> None:
    """Raise AbsentDevice where torch finds no device of this kind. It was planned, so somebody promised one."""
    if why := torch_kind(accelerator).absent():
        raise AbsentDevice(f"accelerator={accelerator}: torch {torch.__version__} {why}")


def precision_of(spec: RunSpec, device: torch.device, what: str) -> str:
    """Return the config's precision. Raises Unsupported where `what` (`loop=raw`, ...) cannot have it."""
    precision = spec.config.precision
    if precision not in AUTOCAST and precision not in CAST:
        raise Unsupported(f"{what} has no precision={precision}; it has {', '.join([*CAST, *AUTOCAST])}")
    if precision == "16-mixed" and device.type == "cpu":
        raise Unsupported("precision=16-mixed is bf16-mixed on a CPU, which is another setting")
    return precision


def refuse_trainer_arguments(spec: RunSpec, what: str) -> None:
    """Raise Unsupported for an argument of Lightning's Trainer that would have no effect in `what`."""
    if refused := without_effect(spec.config.trainer, what):
        raise Unsupported(refused)


def autocast_of(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return a function that gives a new autocast context for a mixed precision, and an idle context for the others."""
    dtype = AUTOCAST.get(precision)
    return nullcontext if dtype is None else partial(torch.autocast, device.type, dtype=dtype)
