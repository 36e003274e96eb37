"""One sweep against another, cell by cell: whether a commit, a machine or a version changed the rates.

Runs of two sweeps share no block, so nothing pairs: Welch's interval, blocks as units, a family of the common cells.
The doubts of both sweeps' runs stand beside the ratio. `unpaired` is not among them: it would stand on every row, and
no further repeat could take it away.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from accelsweep.analysis.baseline_comparison import endings, own_rate
from accelsweep.analysis.comparability import build_doubt, difference, of_sizes, source_doubt
from accelsweep.analysis.intervals import Family, exponential_estimate, verdict, welch_interval
from accelsweep.analysis.run_results import CellRuns, RunRow, group, in_order, rate_metric_of
from accelsweep.analysis.sweep_doubts import cell_doubts, outlying_runs, overlapping_runs
from accelsweep.config.sweep_options import THRESHOLD
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_REGRESSION, InputError
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Doubt
from accelsweep.significant_digits import count_of

MACHINE = "machine"
"""The name that `analysis.across` has for the one machine of each side."""


class CellInBoth(Frozen):
    """A cell in both sweeps. `ratio` is the rate after to that before; None where refused or not measured."""

    cell: str
    label: str
    axes: dict[str, Any]
    before: Estimate | None
    after: Estimate | None
    ratio: Estimate | None
    verdict: Verdict
    reason: str
    doubts: tuple[Doubt, ...] = ()


class SweepComparison(Frozen):
    """Two sweeps, cell by cell. `only_before` and `only_after` are labels of cells that the other lacks."""

    before: str
    after: str
    family: int
    confidence: float
    threshold: float
    rate_unit: str
    rows: tuple[CellInBoth, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


@dataclass(frozen=True)
class Gate:
    """The condition that fails a comparison: the interval supports a `verdict` beyond `threshold` (0.02 is 2 %)."""

    verdict: Verdict
    threshold: float


def parse_gate(text: str) -> Gate:
    """Return the gate for `slower:2%`, `slower:0.02` or `slower` (2 %); raise InputError for other words."""
    match = re.fullmatch(r"(slower|faster)(?::(\d+(?:\.\d+)?)(%?))?", text.strip())
    if match is None:
        raise InputError(f"--fail-if {text!r} is not understood; write for example slower:2%")
    number = float(match[2]) / (100.0 if match[3] else 1.0) if match[2] else THRESHOLD
    if number >= 1.0:
        raise InputError(f"--fail-if {text!r}: a threshold of {number:.0%} is too large; write for example slower:2%")
    return Gate(Verdict(match[1]), number)


def compare_sweeps(
    before: tuple[Iterable[RunRow], Manifest], after: tuple[Iterable[RunRow], Manifest], across: Collection[str] = ()
) -> SweepComparison:
    """Compare two sweeps (the runs that `collect` found, and the plan, of each) over the cells that both plan.

    Cells are matched by name, so their configs are equal. Different hardware or public versions are refused unless
    named in `across`. Different sources of the user's packages are a doubt, because two commits are expected to have
    them. The compared rate, threshold and confidence are those of the sweep `after`.
    """
    rows = in_order(after[0])
    metric = rate_metric_of(after[1], rows)
    old, new = _Side.of("before", before[1], in_order(before[0]), metric), _Side.of("after", after[1], rows, metric)
    pairs, settings = list(_pairs(old, new)), after[1].settings.analysis
    family = Family(max(1, len(pairs)), settings.confidence)
    allowed = (*across, *settings.across)
    return SweepComparison(
        before=before[1].sweep,
        after=after[1].sweep,
        family=family.size,
        confidence=family.confidence,
        threshold=settings.threshold,
        rate_unit=new.groups[0].rate_unit if new.groups else "1/s",
        rows=tuple(
            _row(ours, one, family, settings.threshold, allowed, (*old.doubts(ours), *new.doubts(one)))
            for ours, one in pairs  # of the sweep before, and of the sweep after
        ),
        only_before=old.beyond(new),
        only_after=new.beyond(old),
    )


@dataclass(frozen=True)
class _Side:
    """One of the two sweeps: its rows, and the facts of the sweep's other runs that the doubts of a row need."""

    name: str
    groups: Sequence[CellRuns]
    outlying: Collection[str]
    overlapping: Collection[str]

    @classmethod
    def of(cls, when: str, manifest: Manifest, rows: Sequence[RunRow], metric: str) -> _Side:
        groups = group(manifest, rows, metric)
        return cls(f"{when} ({manifest.sweep})", groups, outlying_runs(groups), overlapping_runs(rows))

    def doubts(self, one: CellRuns) -> list[Doubt]:
        """Return the doubts of one of the rows, each with the name of this side before it."""
        found = cell_doubts(one, self.outlying, self.overlapping)
        return [doubt.model_copy(update={"message": f"{self.name}: {doubt.message}"}) for doubt in found]

    def beyond(self, other: _Side) -> tuple[str, ...]:
        """Return the labels of the cells that the other side lacks."""
        cells = {one.cell for one in other.groups}
        return tuple(dict.fromkeys(one.label for one in self.groups if one.cell not in cells))


def _pairs(old: _Side, new: _Side) -> Iterator[tuple[CellRuns, CellRuns]]:
    """Yield the rows of the cells that both sides plan; the earlier row is on the same hardware if there is one."""
    theirs: dict[str, list[CellRuns]] = {}
    for one in old.groups:
        theirs.setdefault(one.cell, []).append(one)
    for one in new.groups:
        if one.planned.unsupported is None and (found := theirs.get(one.cell)):
            yield next((other for other in found if other.hardware == one.hardware), found[0]), one


def _row(
    old: CellRuns,
    new: CellRuns,
    family: Family,
    threshold: float,
    across: Collection[str],
    own: Sequence[Doubt],
) -> CellInBoth:
    ratio, decision, reason, doubts = None, Verdict.not_measured, "", []
    missing = next((side for side in (old, new) if not side.rated), None)
    refusal = None if missing else difference(new, old, (), (*across, *_sources(old), *_sources(new)))
    if missing is None and refusal is None and MACHINE not in across:
        refusal = one_machine_each(old, new)
    if missing is not None:
        reason = f"{'before' if missing is old else 'after'}: {endings(missing)}"
    elif refusal is not None:
        decision, reason = Verdict.refused, refusal
    else:
        interval = of_sizes(
            new, old, welch_interval(list(new.log_rates.values()), list(old.log_rates.values()), family)
        )
        ratio = exponential_estimate(interval, "1", family)
        decision, reason = verdict(ratio, threshold, new.rate_metric)
        doubts = [doubt for doubt in (build_doubt(new, old), source_doubt(new, old)) if doubt is not None]
    return CellInBoth(
        cell=new.cell,
        label=new.label,
        axes=new.planned.axes,
        before=own_rate(old, family.confidence),
        after=own_rate(new, family.confidence),
        ratio=ratio,
        verdict=decision,
        reason=reason,
        doubts=tuple(dict.fromkeys((*doubts, *own))),
    )


def one_machine_each(old: CellRuns, new: CellRuns) -> str | None:
    """Return why two sides, measured on one machine each and on different ones, show nothing beyond these machines.

    Machines with equal data sheets still differ, and the repeats of one say little about the next. So the machine is
    the unit there, and each side has one. Nothing is concluded from records without an identity of the machine.
    """
    before, after = ({run.machine for run in side.rated} for side in (old, new))
    if len(before) > 1 or len(after) > 1 or before == after or None in before | after:
        return None
    return (
        f"the machine differs: {before.pop()} (before), {after.pop()} (after), and machines of one kind differ too: "
        "measure both sides on one machine, or each on several; to compare them all the same, set "
        f"analysis.across=[{MACHINE}]"
    )


def _sources(side: CellRuns) -> set[str]:
    return {package for run in side.measured for package in run.sources}


# A gate over comparisons of versions or sweeps: a supported regression, one shown absent, none found, or no answer.


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
