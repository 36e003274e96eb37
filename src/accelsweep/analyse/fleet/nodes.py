"""The nodes of a fleet: which are slower, hotter or held back, and how much nodes differ at all.

A node is compared with the mean of the other nodes, over all settings. Each list of nodes has Holm's correction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from accelsweep.analyse.fleet.readings import NodeReadings, over_settings, readings_of
from accelsweep.analyse.statistics.against_others import Deviation, against_others, holm
from accelsweep.analyse.statistics.random_effects import Scatter, components
from accelsweep.analysis.intervals import Family, exponential_estimate, linear_estimate, mean, significant
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.setting import label
from accelsweep.config.sweep_options import Fleet
from accelsweep.core.findings.fleet import FleetFinding, FleetNode, NodeSpread, NodeVerdict
from accelsweep.records.estimates import Estimate
from accelsweep.records.plan import Manifest

HOTTER_BY = 5.0
"""Degrees Celsius above the other nodes from which a node counts as hotter: more than places in a rack differ by."""

HELD_BACK_BLOCKS = 0.5
"""The share of a node's blocks beyond which being held back is the node's own fault."""

_ORDER = (NodeVerdict.slower, NodeVerdict.undecided, NodeVerdict.disturbed, NodeVerdict.not_measured, NodeVerdict.sound)

ValuesOfNodes = Mapping[str, Sequence[float]]
"""A number for each block, by node."""


def fleet_of(rows: Sequence[RunRow], manifest: Manifest) -> FleetFinding | None:
    """Return what the runs say of the nodes; None for a sweep that compares none."""
    fleet = manifest.fleet
    if fleet is None:
        return None
    confidence = manifest.settings.analysis.confidence
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
                celsius=significant(mean(degrees)) if degrees else None,
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
    return None if chance is None else significant(chance, 3)


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
        _components(cell.name, label(cell.axes), [one.logs.get(cell.name, {}) for one in readings.values()], confidence)
        for cell in manifest.cells
    ]
    known = [one for one in each if one is not None]
    return tuple(one for one in (together, *(known if len(known) > 1 else ())) if one is not None)


def _components(
    cell: str | None, name: str, nodes: Sequence[Mapping[str, float]], confidence: float
) -> NodeSpread | None:
    found = components([list(blocks.values()) for blocks in nodes], confidence)
    if found is None:
        return None
    between = _deviation(found.between, confidence, found.groups)
    within = _deviation(found.within, confidence, found.groups + found.degrees)
    return NodeSpread(cell=cell, label=name, between=between, within=within)


def _deviation(found: Scatter, confidence: float, count: int) -> Estimate:
    """Return a standard deviation of log rates, which is one of relative differences as long as it is small."""
    return Estimate(
        value=significant(found.value),
        low=None if found.low is None else significant(found.low),
        high=None if found.high is None else significant(found.high),
        unit="1",
        confidence=confidence,
        count=count,
        reason=found.reason and found.reason.replace("group", "node"),
    )
