"""The kinds of device that a config can name, and the words for them. `machine` tells which of them a machine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict

from accelsweep.json_documents import Frozen

Accelerator = Literal["cpu", "cuda", "mps", "xpu", "simulated"]
"""`cuda` is NVIDIA's and, with a ROCm build of torch, AMD's. `simulated` is a device for tests (docs/devices.md)."""


@dataclass(frozen=True)
class Words:
    """The words for a kind: one rank's share, several of them, and what a site has.

    `own_memory` says whether its memory is apart from the host's. `scheduled` says whether clusters hand it out as GPU.
    `aliases` are other people's names for it: a cell names its kind as torch does.
    """

    one: str
    many: str
    units: str
    own_memory: bool = False
    scheduled: bool = False
    aliases: tuple[str, ...] = ()


KIND_WORDS: dict[str, Words] = {
    "cpu": Words("process", "processes", "CPU cores"),
    "cuda": Words("GPU", "GPUs", "CUDA devices", own_memory=True, scheduled=True, aliases=("gpu", "rocm", "hip")),
    "mps": Words("Apple GPU", "Apple GPUs", "Apple GPUs"),
    "xpu": Words("Intel GPU", "Intel GPUs", "XPU devices", own_memory=True, scheduled=True),
    "simulated": Words("simulated device", "simulated devices", "simulated devices", own_memory=True),
}

AUTOMATIC: tuple[str, ...] = ("cuda", "xpu", "mps")
"""The devices that `accelerator: auto` looks for, in this order, before the CPU. A simulated one is never found so."""

UNKNOWN_KIND = Words("device", "devices", "devices")
"""The words where the kind is not known, as in a table whose kinds differ."""


def words_for(accelerator: object) -> Words:
    """Return the words for a kind; neutral ones for any other value."""
    return KIND_WORDS.get(str(accelerator), UNKNOWN_KIND)


def kind_meant(alias: str) -> str | None:
    """Return the kind that others call `alias`, or None: `gpu` is Lightning's word, the others are AMD's."""
    return next((kind for kind, words in KIND_WORDS.items() if alias in words.aliases), None)


# The limits of memory that a search for the largest batch may end at.

Limit = Literal[
    "device memory", "machine memory", "control group", "RLIMIT_AS", "RLIMIT_DATA", "measure.rank_memory_bytes"
]
"""The kinds of limit that may end a search. All but the last are found; the last is the config's own."""


# The devices of a site.


class Device(Frozen):
    """Devices of one model that a site offers on one node. `count` is cores for `cpu`, devices otherwise."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    accelerator: Accelerator
    model: str
    count: int
    memory_bytes: int | None = None
