"""Cells that differ in a few chosen keys only: the curves of scaling, of batch size, of memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.base.documents import canonical_json
from accelsweep.core.recorded.hardware import HardwareKind


def series(
    groups: Iterable[CellRuns], free: Collection[str], mark: Callable[[CellRuns], Any] = lambda _: None
) -> list[list[CellRuns]]:
    """Return the sets of two or more cells, on one kind of hardware, whose configs are equal but for the `free` keys.

    Cells in one set also have the same `mark`. Cells that have not run anywhere belong to none.
    """
    found: dict[tuple[HardwareKind, str], list[CellRuns]] = {}
    for group in groups:
        if group.hardware and group.config is not None:
            rest = {key: value for key, value in group.config.raw.items() if key not in free}
            found.setdefault((group.hardware, canonical_json([rest, mark(group)])), []).append(group)
    return [members for members in found.values() if len(members) > 1]


def series_label(axes: Mapping[str, Any], free: Collection[str], *suffix: str) -> str:
    """Return a short text for a series: the axes that do not vary in it, then `suffix`."""
    parts = [
        str(value)
        if key in ("accelerator", "precision")
        else f"{'batch ' if key == 'batch_size' else key + '='}{value}"
        for key, value in axes.items()
        if key not in free
    ]
    return " | ".join([*parts, *suffix]) or "all settings"


def ranks(group: CellRuns) -> int | None:
    """Return how many devices (processes on a CPU) the cell trains on over all nodes, or None if that is unknown."""
    return None if group.config is None else group.config.world_size
