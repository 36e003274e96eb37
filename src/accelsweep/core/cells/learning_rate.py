"""The keys of `optimizer` that are ours: they set the learning rate, and are not handed to the optimiser's class."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from accelsweep.base.bounds import Count, Natural

Scaling = Literal["none", "linear", "sqrt"]


class LearningRate(BaseModel):
    """The way the learning rate follows the batch. The optimiser's own keys beside these are ignored.

    `optimizer.lr` is meant for a global batch of `base_batch_size` samples, and `lr_scaling` makes it fit another. It
    grows to its value over the first `warmup_steps` optimiser steps. None is the same as leaving the key out.
    """

    model_config = ConfigDict(frozen=True)

    lr_scaling: Scaling | None = None
    base_batch_size: Count | None = None
    warmup_steps: Natural | None = None
