"""The readings of each node of a fleet: rates and temperatures by block, and blocks in which something was wrong.

The block is the unit. A run that took place on another node than its block was planned for tells nothing of that node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accelsweep.analysis.intervals import mean
from accelsweep.analysis.run_results import RunRow, rate_metric_of
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Outcome

MOST_DISTURBED = 0.5
"""The largest share of disturbed runs with which a node may still be judged, as for settings."""


@dataclass
class NodeReadings:
    """One node: log rates by setting and block, degrees Celsius by block, and its measured runs."""

    planned: int = 0
    logs: dict[str, dict[str, float]] = field(default_factory=dict)
    celsius: dict[str, float] = field(default_factory=dict)
    runs: list[RunRow] = field(default_factory=list)

    @property
    def throttled(self) -> int:
        """The number of blocks in which a device was held back for heat or a fault, in any run."""
        return len({run.block for run in self.runs if any(doubt.code == "throttled" for doubt in run.doubts)})

    @property
    def blocks(self) -> int:
        """The number of blocks with a measured run."""
        return len({run.block for run in self.runs})

    @property
    def disturbance(self) -> str | None:
        """The reason why the node's rates do not count: others used it in most runs. Being held back is none."""
        others = [[one for one in run.doubts if one.disturbing and one.code != "throttled"] for run in self.runs]
        found = [doubts[0] for doubts in others if doubts]
        if len(found) <= MOST_DISTURBED * len(self.runs):
            return None
        return f"{len(found)} of {len(self.runs)} runs: {found[0].message}"

    @property
    def drivers(self) -> tuple[str, ...]:
        """The drivers that the runs saw, in the order in which they did."""
        begun = sorted(self.runs, key=lambda run: run.started_at or "")
        return tuple(dict.fromkeys(driver for run in begun if (driver := run.hardware.driver)))

    @property
    def dates(self) -> tuple[str, ...]:
        """The first and the last day of its runs, once where they are one."""
        days = sorted(run.started_at[:10] for run in self.runs if run.started_at)
        return tuple(dict.fromkeys([days[0], days[-1]])) if days else ()


def readings_of(rows: Sequence[RunRow], manifest: Manifest) -> dict[str, NodeReadings]:
    """Return what each node of the plan measured, by the node's name, in the order of the plan."""
    metric = rate_metric_of(manifest, rows)
    node_of = {block.name: block.resources.node for block in manifest.blocks}
    found: dict[str, NodeReadings] = {}
    for node in node_of.values():
        if node is not None:
            found.setdefault(node, NodeReadings()).planned += 1
    for row in rows:
        node = node_of.get(row.block or "")
        if node is not None and row.outcome is Outcome.measured and row.node in (None, node):
            found[node].runs.append(row)
    for one in found.values():
        one.logs = _logs(one.runs, metric)
        one.celsius = _by_block((run.block or "", warmth) for run in one.runs if (warmth := _celsius(run)) is not None)
    return found


def _logs(runs: Iterable[RunRow], metric: str) -> dict[str, dict[str, float]]:
    """Return the mean log rate by setting and block."""
    pairs: dict[str, list[tuple[str, float]]] = {}
    for run in runs:
        if (value := run.value(metric)) is not None and value > 0:
            pairs.setdefault(run.cell, []).append((run.block or "", math.log(value)))
    return {cell: _by_block(values) for cell, values in pairs.items()}


def _by_block(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for block, value in pairs:
        found.setdefault(block, []).append(value)
    return {block: mean(values) for block, values in found.items()}


def _celsius(run: RunRow) -> float | None:
    """Return the temperature of the warmest device at the end of the window, else that of the processor after it."""
    known = [float(device.celsius) for device in run.surroundings.closed.devices if device.celsius is not None]
    processor = run.surroundings.after.cpu_celsius
    return max(known) if known else None if processor is None else float(processor)


def over_settings(readings: Mapping[str, NodeReadings]) -> dict[str, dict[str, float]]:
    """Return, by node and block, how far the log rates lie above their settings' usual ones, on the mean of settings.

    A setting's usual log rate is the mean over the nodes' means. So a setting that failed in a block changes little.
    """
    usual = {
        cell: mean([mean(list(one.logs[cell].values())) for one in readings.values() if cell in one.logs])
        for cell in {cell for one in readings.values() for cell in one.logs}
    }
    return {
        node: _by_block(
            (block, log - usual[cell]) for cell in sorted(one.logs) for block, log in one.logs[cell].items()
        )
        for node, one in readings.items()
    }
