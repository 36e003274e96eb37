"""The text of a drafted site file: what an engine says of its nodes, with comments on what it does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DraftedKind:
    """Alike nodes. `called` is the name that they get if it is free, and `nodes` how many there are.

    `gpus` are of one node, `gpu_model` is the cluster's name of them. `words` are lines below the engine's key,
    `comments` follow them.
    """

    called: str
    listed: str
    nodes: int
    cores: int
    memory_bytes: int
    gpus: int
    gpu_model: str | None
    words: Sequence[str]
    comments: Sequence[str] = ()


def site_file(name: str, scheduler: str, source: str, words: Sequence[str], kinds: Sequence[DraftedKind]) -> str:
    """Return the site file of a cluster. `words` are lines below the engine's key, `source` the command asked."""
    lines = [
        f"# A draft from {source}, which runs as it is: accelsweep doctor site={name} tries it.",
        "# Complete what the cluster does not tell: the makers' names of processors and GPUs, the scratch folder.",
        f"name: {plain(name)}",
        f"scheduler: {scheduler}",
        "probe: false",
        f"{scheduler}:",
        *(f"  {line}" for line in words),
        "kinds:",
    ]
    taken: set[str] = set()
    for kind in kinds:
        lines += _kind(kind, _unused(kind.called, taken), scheduler)
    return "\n".join(lines) + "\n"


def _kind(kind: DraftedKind, name: str, scheduler: str) -> list[str]:
    cpu = f"{{accelerator: cpu, model: CPU, count: {kind.cores}, memory_bytes: {kind.memory_bytes}}}"
    lines = [
        f"  - name: {plain(name)}               # {kind.listed}",
        f"    nodes: {kind.nodes}",
        "    inventory:                # models as lscpu and nvidia-smi -L name them: prices go by these names",
        f"      - {cpu}",
    ]
    if kind.gpus:
        lines.append(f"      - {{accelerator: cuda, model: {plain(kind.gpu_model or 'GPU')}, count: {kind.gpus}}}")
    lines += [f"    {scheduler}:", *(f"      {line}" for line in kind.words)]
    return [*lines, *(f"    # {comment}" for comment in kind.comments)]


def plain(text: str) -> str:
    """Return a text as YAML takes it for one, in quotes where it might be taken for a number, a truth or nothing."""
    word = re.fullmatch(r"[A-Za-z_][\w.-]*", text) is not None
    return text if word and text.lower() not in _NO_TEXTS else json.dumps(text)


_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan", "inf")


def also(others: Sequence[str]) -> str:
    """Return the comment on a value in whose place one of the `others` may stand."""
    return f"  # or {', '.join(others)}" if others else ""


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found
