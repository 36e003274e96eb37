"""Compares a fleet's nodes: which are slower, hotter or throttled, and how much nodes differ in general.

Each node is compared with the mean of the other nodes, over all settings. The tests for slower nodes and for hotter
nodes are each corrected for multiple testing with Holm's method.
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
from accelsweep.features.fleet.statistics import (
    ComponentEstimate,
    Deviation,
    deviations_from_others,
    holm,
    variance_components,
)
from accelsweep.records.estimates import Estimate
from accelsweep.records.plan import Manifest
from accelsweep.results import MAX_DISTURBED_SHARE, Outcome

HOTTER_BY = 5.0
"""A node is considered hotter if it exceeds the others by this many kelvins, more than nodes in a rack differ."""

MAX_THROTTLED_SHARE = 0.5
"""The share of throttled blocks above which the node itself is considered faulty."""

_ORDER = (NodeVerdict.slower, NodeVerdict.undecided, NodeVerdict.disturbed, NodeVerdict.not_measured, NodeVerdict.sound)


@dataclass
class NodeData:
    """A node's measured runs, its log rates by setting and block, and its temperatures in Celsius by block."""

    planned: int = 0
    runs: list[RunRow] = field(default_factory=list)
    log_rates: dict[str, dict[str, float]] = field(default_factory=dict)
    celsius: dict[str, float] = field(default_factory=dict)

    def add_values(self, metric: str) -> None:
        """Fill in the rates and temperatures from the runs."""
        by_setting: dict[str, list[tuple[str, float]]] = {}
        celsius: list[tuple[str, float]] = []
        for run in self.runs:
            block = run.block or ""
            if (rate := run.value(metric)) is not None and rate > 0:
                by_setting.setdefault(run.setting, []).append((block, math.log(rate)))
            if (degrees := _celsius(run)) is not None:
                celsius.append((block, degrees))
        self.log_rates = {setting: _block_means(values) for setting, values in by_setting.items()}
        self.celsius = _block_means(celsius)

    @property
    def disturbance(self) -> str | None:
        """Why the rates are not judged: other load on the node during most runs. Throttling is not a disturbance."""
        disturbances = [
            [doubt for doubt in run.doubts if doubt.disturbing and doubt.code != "throttled"] for run in self.runs
        ]
        disturbed = [doubts[0] for doubts in disturbances if doubts]
        if len(disturbed) <= MAX_DISTURBED_SHARE * len(self.runs):
            return None
        return f"{len(disturbed)} of {len(self.runs)} runs: {disturbed[0].message}"


def _block_means(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for block, value in pairs:
        values.setdefault(block, []).append(value)
    return {block: mean(numbers) for block, numbers in values.items()}


def _celsius(run: RunRow) -> float | None:
    """Return the temperature of the hottest device at the end of the window, or else of the CPU after the window."""
    known = [float(device.celsius) for device in run.surroundings.closed.devices if device.celsius is not None]
    cpu = run.surroundings.after.cpu_celsius
    return max(known) if known else None if cpu is None else float(cpu)


def build_section(analysis: Analysis) -> FleetFinding | None:
    """Return the findings on nodes; None if the sweep does not compare nodes."""
    manifest = analysis.manifest
    fleet = manifest.part(Fleet)
    if fleet is None:
        return None
    confidence = manifest.options.analysis.confidence
    nodes = _collect(analysis.rows, manifest)
    order = sorted(
        _compare(nodes, fleet, confidence),
        key=lambda node: (
            not node.sick,
            _ORDER.index(node.verdict),
            node.ratio.value if node.ratio is not None else math.inf,
            node.node,
        ),
    )
    return FleetFinding(
        nodes=tuple(order),
        spread=_spread(nodes, manifest, confidence),
        tolerance=fleet.tolerance,
        hotter_by=HOTTER_BY,
        confidence=confidence,
    )


def _collect(rows: Sequence[RunRow], manifest: Manifest) -> dict[str, NodeData]:
    """Return the data of each node, in plan order. Runs that landed on a different node than planned are left out."""
    metric = rate_metric_of(manifest, rows)
    node_of = {block.name: block.resources.node for block in manifest.blocks}
    nodes: dict[str, NodeData] = {}
    for node in node_of.values():
        if node is not None:
            nodes.setdefault(node, NodeData()).planned += 1
    for row in rows:
        node = node_of.get(row.block or "")
        if node is not None and row.outcome is Outcome.measured and row.node in (None, node):
            nodes[node].runs.append(row)
    for data in nodes.values():
        data.add_values(metric)
    return nodes


def _relative_log_rates(nodes: Mapping[str, NodeData]) -> dict[str, dict[str, float]]:
    """Return the mean over settings of the log rate relative to the setting's usual one, keyed by node and block.

    A setting's usual log rate is the mean of the node means, so a setting that failed in a block causes little bias.
    """
    usual = {
        setting: mean(
            [mean(list(data.log_rates[setting].values())) for data in nodes.values() if setting in data.log_rates]
        )
        for setting in {setting for data in nodes.values() for setting in data.log_rates}
    }
    return {
        node: _block_means(
            (block, log_rate - usual[setting])
            for setting in sorted(data.log_rates)
            for block, log_rate in data.log_rates[setting].items()
        )
        for node, data in nodes.items()
    }


def _compare(nodes: Mapping[str, NodeData], fleet: Fleet, confidence: float) -> list[FleetNode]:
    rates = _deviations({node: list(blocks.values()) for node, blocks in _relative_log_rates(nodes).items()})
    temperatures = _deviations({node: list(data.celsius.values()) for node, data in nodes.items()})
    bound = -math.log1p(fleet.tolerance)
    slower_p = _corrected_p_values(rates, bound, confidence)
    hotter_p = _corrected_p_values({node: -higher for node, higher in temperatures.items()}, -HOTTER_BY, confidence)
    rate_family, temperature_family = Family(len(rates), confidence), Family(len(temperatures), confidence)
    level, compared = 1.0 - confidence, []
    for node, data in nodes.items():
        ratio = exponential_estimate(rates[node].interval(rate_family), "1", rate_family) if node in rates else None
        temperature_excess = (
            linear_estimate(temperatures[node].interval(temperature_family), "K", temperature_family)
            if node in temperatures
            else None
        )
        verdict, reason = _verdict(data, ratio, slower_p.get(node), bound, level)
        blocks = len({run.block for run in data.runs})
        throttled = len({run.block for run in data.runs if any(doubt.code == "throttled" for doubt in run.doubts)})
        slower, held_back = verdict is NodeVerdict.slower, throttled > MAX_THROTTLED_SHARE * max(blocks, 1)
        faults = {"slower": slower, "throttled": held_back, "hotter": hotter_p.get(node, 1.0) <= level}
        by_time = sorted(data.runs, key=lambda run: run.started_at or "")
        days = [run.started_at[:10] for run in by_time if run.started_at]
        compared.append(
            FleetNode(
                node=node,
                sick=slower or held_back,
                faults=tuple(fault for fault, is_shown in faults.items() if is_shown),
                verdict=verdict,
                reason=reason,
                ratio=ratio,
                p_value=_rounded(slower_p.get(node)),
                celsius=round_significant(mean(list(data.celsius.values()))) if data.celsius else None,
                temperature_excess=temperature_excess,
                temperature_excess_p_value=_rounded(hotter_p.get(node)),
                blocks=blocks,
                planned=data.planned,
                throttled=throttled,
                drivers=tuple(dict.fromkeys(driver for run in by_time if (driver := run.hardware.driver))),
                dates=tuple(dict.fromkeys([days[0], days[-1]])) if days else (),
            )
        )
    return compared


def _deviations(values: Mapping[str, Sequence[float]]) -> dict[str, Deviation]:
    """Return the deviation from the others for each node with values; empty if there are fewer than two such nodes."""
    known = {node: numbers for node, numbers in values.items() if numbers}
    if len(known) < 2:
        return {}
    return dict(zip(known, deviations_from_others(list(known.values())), strict=True))


def _corrected_p_values(deviations: Mapping[str, Deviation], bound: float, confidence: float) -> dict[str, float]:
    p_values = holm([deviation.p_value_below(bound, confidence) for deviation in deviations.values()])
    return dict(zip(deviations, p_values, strict=True))


def _rounded(p_value: float | None) -> float | None:
    return None if p_value is None else round_significant(p_value, 3)


def _verdict(
    data: NodeData, ratio: Estimate | None, p_value: float | None, bound: float, level: float
) -> tuple[NodeVerdict, str]:
    """Return the verdict on a node's rate with its reason; `bound` is the lowest healthy log ratio."""
    least = math.exp(bound)
    if ratio is None or p_value is None:
        return NodeVerdict.not_measured, "no run on it has a rate" if not data.log_rates else "no other node has a rate"
    if (disturbance := data.disturbance) is not None:
        return NodeVerdict.disturbed, disturbance
    if ratio.low is None or ratio.high is None:
        return NodeVerdict.undecided, f"no interval: {ratio.reason}"
    interval = f"the interval [{ratio.low:.4g}, {ratio.high:.4g}]"
    if p_value <= level:
        return NodeVerdict.slower, f"slower than {least:.4g} times the others' rate (p = {p_value:.2g}, Holm-corrected)"
    if ratio.low >= least:
        return NodeVerdict.sound, f"{interval} is above {least:.4g}"
    return NodeVerdict.undecided, f"{interval} extends below {least:.4g}"


def _spread(nodes: Mapping[str, NodeData], manifest: Manifest, confidence: float) -> tuple[NodeSpread, ...]:
    """Return the spread over all settings together, and for each setting if there are several."""
    together = _node_spread(None, "all settings", list(_relative_log_rates(nodes).values()), confidence)
    by_setting = [
        spread
        for setting in manifest.settings
        if (
            spread := _node_spread(
                setting.name,
                label(setting.axes),
                [data.log_rates.get(setting.name, {}) for data in nodes.values()],
                confidence,
            )
        )
        is not None
    ]
    return (*([together] if together is not None else ()), *(by_setting if len(by_setting) > 1 else ()))


def _node_spread(
    setting: str | None, name: str, nodes: Sequence[Mapping[str, float]], confidence: float
) -> NodeSpread | None:
    components = variance_components([list(blocks.values()) for blocks in nodes], confidence)
    if components is None:
        return None

    def estimate(component: ComponentEstimate, count: int) -> Estimate:
        # The standard deviation of log rates approximates that of relative differences as long as it is small.
        return Estimate(
            value=round_significant(component.value),
            low=None if component.low is None else round_significant(component.low),
            high=None if component.high is None else round_significant(component.high),
            unit="1",
            confidence=confidence,
            count=count,
            reason=component.reason and component.reason.replace("group", "node"),
        )

    between = estimate(components.between, components.groups)
    within = estimate(components.within, components.groups + components.degrees)
    return NodeSpread(setting=setting, label=name, between=between, within=within)
