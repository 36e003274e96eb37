"""The devices of a site."""

from __future__ import annotations

from pydantic import ConfigDict

from accelsweep.base.documents import Frozen
from accelsweep.core.cells.accelerators import Accelerator


class Device(Frozen):
    """Devices of one model that a site offers on one node. `count` is cores for `cpu`, devices otherwise."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    accelerator: Accelerator
    model: str
    count: int
    memory_bytes: int | None = None
