"""The nodes of a fleet: which are slower, hotter or held back, and how much nodes differ at all.

A node is compared with the mean of the other nodes, over all settings. Each list of nodes has Holm's correction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.intervals import Family, exponential_estimate, linear_estimate, mean, round_significant
from accelsweep.analysis.run_results import RunRow, rate_metric_of
from accelsweep.config.setting import label
from accelsweep.features.fleet.findings import FleetFinding, FleetNode, NodeSpread, NodeVerdict
from accelsweep.features.fleet.planning import Fleet
from accelsweep.features.fleet.statistics import Deviation, Scatter, against_others, components, holm
from accelsweep.records.estimates import Estimate
from accelsweep.records.plan import Manifest
from accelsweep.results import Outcome

# The readings of each node of a fleet: rates and temperatures by block, and blocks in which something was wrong.

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
            pairs.setdefault(run.setting, []).append((run.block or "", math.log(value)))
    return {setting: _by_block(values) for setting, values in pairs.items()}


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
        setting: mean([mean(list(one.logs[setting].values())) for one in readings.values() if setting in one.logs])
        for setting in {setting for one in readings.values() for setting in one.logs}
    }
    return {
        node: _by_block(
            (block, log - usual[setting]) for setting in sorted(one.logs) for block, log in one.logs[setting].items()
        )
        for node, one in readings.items()
    }


HOTTER_BY = 5.0
"""Degrees Celsius above the other nodes from which a node counts as hotter: more than places in a rack differ by."""

HELD_BACK_BLOCKS = 0.5
"""The share of a node's blocks beyond which being held back is the node's own fault."""

_ORDER = (NodeVerdict.slower, NodeVerdict.undecided, NodeVerdict.disturbed, NodeVerdict.not_measured, NodeVerdict.sound)

ValuesOfNodes = Mapping[str, Sequence[float]]
"""A number for each block, by node."""


def fleet_of(rows: Sequence[RunRow], manifest: Manifest) -> FleetFinding | None:
    """Return what the runs say of the nodes; None for a sweep that compares none."""
    fleet = manifest.part(Fleet)
    if fleet is None:
        return None
    confidence = manifest.options.analysis.confidence
    readings = readings_of(rows, manifest)
    found = _nodes(readings, fleet, confidence)
    order = sorted(found, key=lambda one: (not one.sick, _ORDER.index(one.verdict), _ratio(one), one.node))
    return FleetFinding(
        nodes=tuple(order),
        spread=_spread(readings, manifest, confidence),
        tolerance=fleet.tolerance,
        hotter_by=HOTTER_BY,
        confidence=confidence,
    )


def _ratio(one: FleetNode) -> float:
    return one.ratio.value if one.ratio is not None else math.inf


def _nodes(readings: Mapping[str, NodeReadings], fleet: Fleet, confidence: float) -> list[FleetNode]:
    rates = _deviations({node: list(blocks.values()) for node, blocks in over_settings(readings).items()})
    warmth = _deviations({node: list(one.celsius.values()) for node, one in readings.items()})
    bound = -math.log1p(fleet.tolerance)
    slow = _corrected(rates, bound, confidence)
    hot = _corrected({node: one.mirrored for node, one in warmth.items()}, -HOTTER_BY, confidence)
    level, found = 1.0 - confidence, []
    for node, one in readings.items():
        ratio, warmer = _estimate(rates, node, confidence), _warmer(warmth, node, confidence)
        verdict, reason = _verdict(one, ratio, slow.get(node), bound, level)
        degrees = list(one.celsius.values())
        found.append(
            FleetNode(
                node=node,
                blocks=one.blocks,
                planned=one.planned,
                verdict=verdict,
                reason=reason,
                ratio=ratio,
                chance=_rounded(slow.get(node)),
                celsius=round_significant(mean(degrees)) if degrees else None,
                warmer=warmer,
                warmer_chance=_rounded(hot.get(node)),
                hotter=hot.get(node, 1.0) <= level,
                throttled=one.throttled,
                held_back=one.throttled > HELD_BACK_BLOCKS * max(one.blocks, 1),
                drivers=one.drivers,
                dates=one.dates,
            )
        )
    return found


def _deviations(values: ValuesOfNodes) -> dict[str, Deviation]:
    """Return the deviations of the nodes with values; none where fewer than two nodes have any."""
    known = {node: numbers for node, numbers in values.items() if numbers}
    if len(known) < 2:
        return {}
    return dict(zip(known, against_others(list(known.values())), strict=True))


def _corrected(deviations: Mapping[str, Deviation], bound: float, confidence: float) -> dict[str, float]:
    chances = holm([one.chance_below(bound, confidence) for one in deviations.values()])
    return dict(zip(deviations, chances, strict=True))


def _rounded(chance: float | None) -> float | None:
    return None if chance is None else round_significant(chance, 3)


def _estimate(deviations: Mapping[str, Deviation], node: str, confidence: float) -> Estimate | None:
    family = Family(len(deviations), confidence)
    return exponential_estimate(deviations[node].interval(family), "1", family) if node in deviations else None


def _warmer(deviations: Mapping[str, Deviation], node: str, confidence: float) -> Estimate | None:
    family = Family(len(deviations), confidence)
    return linear_estimate(deviations[node].interval(family), "K", family) if node in deviations else None


def _verdict(
    one: NodeReadings, ratio: Estimate | None, chance: float | None, bound: float, level: float
) -> tuple[NodeVerdict, str]:
    """Return the verdict on a node's rate, and the words that say why."""
    least = math.exp(bound)
    if ratio is None or chance is None:
        return NodeVerdict.not_measured, "no run of it has a rate" if not one.logs else "no other node has a rate"
    if (why := one.disturbance) is not None:
        return NodeVerdict.disturbed, why
    if ratio.low is None or ratio.high is None:
        return NodeVerdict.undecided, f"no interval: {ratio.reason}"
    shown = f"the interval [{ratio.low:.4g}, {ratio.high:.4g}]"
    if chance <= level:
        return NodeVerdict.slower, f"slower than {least:.4g} of the others (p = {chance:.2g} by Holm's correction)"
    if ratio.low >= least:
        return NodeVerdict.sound, f"{shown} lies above {least:.4g}"
    return NodeVerdict.undecided, f"{shown} reaches below {least:.4g}"


def _spread(readings: Mapping[str, NodeReadings], manifest: Manifest, confidence: float) -> tuple[NodeSpread, ...]:
    """Return the variance components of all settings together, and of each setting where there are several."""
    together = _components(None, "all settings", list(over_settings(readings).values()), confidence)
    each = [
        _components(
            setting.name, label(setting.axes), [one.logs.get(setting.name, {}) for one in readings.values()], confidence
        )
        for setting in manifest.settings
    ]
    known = [one for one in each if one is not None]
    return tuple(one for one in (together, *(known if len(known) > 1 else ())) if one is not None)


def _components(
    setting: str | None, name: str, nodes: Sequence[Mapping[str, float]], confidence: float
) -> NodeSpread | None:
    found = components([list(blocks.values()) for blocks in nodes], confidence)
    if found is None:
        return None
    between = _deviation(found.between, confidence, found.groups)
    within = _deviation(found.within, confidence, found.groups + found.degrees)
    return NodeSpread(setting=setting, label=name, between=between, within=within)


def _deviation(found: Scatter, confidence: float, count: int) -> Estimate:
    """Return a standard deviation of log rates, which is one of relative differences as long as it is small."""
    return Estimate(
        value=round_significant(found.value),
        low=None if found.low is None else round_significant(found.low),
        high=None if found.high is None else round_significant(found.high),
        unit="1",
        confidence=confidence,
        count=count,
        reason=found.reason and found.reason.replace("group", "node"),
    )


def build_section(analysis: Analysis) -> FleetFinding | None:
    """Return the nodes of a sweep that compares nodes; None for another."""
    return fleet_of(analysis.rows, analysis.manifest)
