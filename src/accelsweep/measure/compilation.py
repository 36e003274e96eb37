"""Counts what torch.compile does, from torch's own statistics: graphs, their times, graph breaks and recompilations."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accelsweep.metrics import Metric

_GUARD = re.compile(r"^\d+(/\d+)+: ")
"""The number of a graph, with which torch begins the reason for compiling it again."""


@dataclass(frozen=True)
class Recompilations:
    """The graphs that were compiled within the window, and the reasons that torch gives."""

    count: int
    reasons: tuple[str, ...]


class CompileWatch:
    """Observes which graphs are compiled between both ends of the window."""

    def __init__(self) -> None:
        """Nothing is observed until `start`."""
        self._opened = self._closed = 0.0

    def start(self) -> None:
        """Note when the window opens."""
        self._opened = time.time()  # by the clock of torch's statistics

    def stop(self) -> None:
        """Note when the window closes."""
        self._closed = time.time()

    @property
    def recompilations(self) -> Recompilations:
        """The graphs compiled within the window. torch remembers only the last few."""
        graphs = [
            graph
            for graph in _graphs()
            if getattr(graph, "is_forward", True) and self._opened <= _began(graph) <= self._closed
        ]
        reasons = (_GUARD.sub("", str(graph.recompile_reason)) for graph in graphs if _has_reason(graph))
        return Recompilations(len(graphs), tuple(dict.fromkeys(reasons)))


def _has_reason(graph: Any) -> bool:
    return bool(getattr(graph, "recompile_reason", None))


def _began(graph: Any) -> float:
    microseconds = getattr(graph, "start_time_us", None)
    return float(getattr(graph, "start_time", 0.0) if microseconds is None else microseconds / 1e6)


def _graphs() -> Sequence[Any]:
    """Return torch's statistics of the last graphs; empty if nothing was compiled."""
    graphs: Any = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", tuple)
    return graphs()  # type: ignore[no-any-return]


def compiled_graphs() -> int:
    """Return how many graphs torch.compile has made in this process."""
    statistics: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if statistics is None else int(statistics.counters["stats"]["unique_graphs"])


def compilation_metrics(watch: CompileWatch) -> dict[str, Metric]:
    """Return how many graphs this rank has compiled, how long that took, and how often a graph was interrupted.

    Returns an empty dictionary if nothing was compiled.
    """
    statistics: Any = sys.modules.get("torch._dynamo.utils")
    if not (graphs := compiled_graphs()):
        return {}
    breaks = statistics.counters["graph_break"].total()
    scope = "rank 0, until the end of the window"
    times: dict[str, float] = getattr(statistics, "calculate_time_spent", dict)()
    seconds = times.get("total_wall_time")
    compiling = {"unit": "s", "scope": scope}
    return {
        "compiled_graphs": Metric(value=float(graphs), unit="graphs", scope=scope, provenance="counter"),
        "graph_breaks": Metric(value=float(breaks), unit="breaks", scope=scope, provenance="counter"),
        "compile_seconds": Metric(value=None, reason="this torch does not sum it up", **compiling)
        if seconds is None
        else Metric(value=float(seconds), provenance="clock", **compiling),
        "recompilations": _recompilations(watch)
        if hasattr(statistics, "get_compilation_metrics")
        else Metric(value=None, unit="graphs", reason="this torch does not list its graphs"),
    }


def _recompilations(watch: CompileWatch) -> Metric:
    count, scope = float(watch.recompilations.count), "rank 0, in the window"
    return Metric(value=count, unit="graphs", scope=scope, provenance="counter")
