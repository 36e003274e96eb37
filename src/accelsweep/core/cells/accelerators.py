"""The kinds of device that a config can name, and the words for them. `machine` tells which of them a machine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
