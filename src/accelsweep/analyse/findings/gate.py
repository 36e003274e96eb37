"""A gate over the comparisons of versions: a supported regression, one shown absent, none found, or no answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from accelsweep.analyse.findings.between_sweeps import Gate
from accelsweep.analyse.statistics.intervals import verdict
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict


class GateState(StrEnum):
    """The standing of one comparison, or of all of them together, to a gate. The worst comes first."""

    regression = "regression"
    not_measured = "not measured"
    none_found = "none found"
    shown_absent = "shown absent"


@dataclass(frozen=True)
class Gated:
    """A compared setting and its state."""

    cell: CellFinding
    state: GateState


def gated(findings: Findings, baselines: Collection[str], gate: Gate) -> tuple[Gated, ...]:
    """Return the state of each setting that is compared with one of the `baselines`."""
    compared = (cell for cell in findings.cells if cell.cell not in baselines)
    return tuple(Gated(cell, _state(cell, gate)) for cell in compared)


def worst(settings: Collection[Gated]) -> GateState:
    """Return the state of all settings together; without any, nothing was measured."""
    states = {one.state for one in settings}
    return next((state for state in GateState if state in states), GateState.not_measured)


def _state(cell: CellFinding, gate: Gate) -> GateState:
    """Return the state that the whole interval supports, where the runs may be judged at all."""
    ratio = cell.ratio
    unfit = cell.verdict in (Verdict.disturbed, Verdict.not_yet, Verdict.refused)
    if ratio is None or ratio.low is None or ratio.high is None or unfit:
        return GateState.not_measured
    if verdict(ratio, gate.threshold)[0] is gate.verdict:
        return GateState.regression
    most = 1.0 + gate.threshold
    absent = ratio.low >= 1.0 / most if gate.verdict is Verdict.slower else ratio.high <= most
    return GateState.shown_absent if absent else GateState.none_found
