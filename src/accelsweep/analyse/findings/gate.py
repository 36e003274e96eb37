"""A gate over comparisons of versions or sweeps: a supported regression, one shown absent, none found, or no answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from accelsweep.analyse.findings.between_sweeps import CellInBoth, Gate, SweepComparison
from accelsweep.analyse.statistics.intervals import verdict
from accelsweep.base.digits import count_of
from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_REGRESSION
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict


class GateState(StrEnum):
    """The standing of one comparison, or of all of them together, to a gate. The worst comes first."""

    regression = "regression"
    not_measured = "not measured"
    none_found = "none found"
    shown_absent = "shown absent"

    @property
    def exit_code(self) -> int:
        """The exit code of a gate, which alone decides: runs that failed may not matter to it."""
        codes = {GateState.regression: EXIT_REGRESSION, GateState.not_measured: EXIT_INCOMPLETE}
        return codes.get(self, EXIT_OK)


@dataclass(frozen=True)
class Gated:
    """A compared setting and its state."""

    cell: CellFinding | CellInBoth
    state: GateState

    @property
    def reason(self) -> str:
        """The reason of the setting's verdict."""
        return self.cell.reason if isinstance(self.cell, CellInBoth) else self.cell.verdict_reason


def gated(findings: Findings, baselines: Collection[str], gate: Gate) -> tuple[Gated, ...]:
    """Return the state of each setting that is compared with one of the `baselines`."""
    compared = (cell for cell in findings.cells if cell.cell not in baselines)
    return tuple(Gated(cell, _state(cell, gate)) for cell in compared)


def gated_rows(comparison: SweepComparison, gate: Gate) -> tuple[Gated, ...]:
    """Return the state of each setting that two sweeps have. Settings without a rate in either are left out."""
    return tuple(Gated(row, _state(row, gate)) for row in comparison.rows if row.before or row.after)


def worst(settings: Collection[Gated]) -> GateState:
    """Return the state of all settings together; without any, nothing was measured."""
    states = {one.state for one in settings}
    return next((state for state in GateState if state in states), GateState.not_measured)


def _state(cell: CellFinding | CellInBoth, gate: Gate) -> GateState:
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


def words_of_gate(settings: Sequence[Gated], state: GateState) -> str:
    """Return the answer of a gate: `state` is that of all `settings` together."""
    here = [one for one in settings if one.state is state]
    of = f"{len(here)} of {count_of(len(settings), 'comparison')}"
    if state is GateState.regression:
        return f"failed by {'; '.join(one.cell.label for one in here)}"
    if state is GateState.not_measured:
        return f"{of} could not be judged: {here[0].reason if here else 'nothing could be compared'}"
    if state is GateState.none_found:
        return f"none was found, but {of} could still hide one: more blocks would tell"
    return f"shown absent in {'the only comparison' if len(settings) == 1 else f'all {len(settings)} comparisons'}"
