"""Compares two sweeps setting by setting, and implements gates that fail on a regression.

Runs of different sweeps share no blocks and thus cannot be paired, so Welch's intervals are used, with the block as the
statistical unit. The intervals for all common settings form one family. The doubts about both sweeps' runs are reported
with the ratio, except for `unpaired`, which would apply to every setting and could not be resolved by further repeats.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from accelsweep.analysis.baseline_comparison import outcome_summary, rate_estimate
from accelsweep.analysis.comparability import build_doubt, incompatibility, source_doubt, with_search_brackets
from accelsweep.analysis.intervals import Family, exponential_estimate, verdict, welch_interval
from accelsweep.analysis.run_results import RunRow, SettingRuns, group_runs, rate_metric_of, sorted_runs
from accelsweep.analysis.sweep_doubts import outlying_runs, overlapping_runs, setting_doubts
from accelsweep.config.sweep_options import THRESHOLD
from accelsweep.errors import EXIT_INCOMPLETE, EXIT_OK, EXIT_REGRESSION, InputError
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import ComparedSetting, Findings, SettingFinding, SweepComparison
from accelsweep.records.plan import Manifest
from accelsweep.results import Doubt
from accelsweep.significant_digits import count_of

MACHINE = "machine"
"""The entry in `analysis.across` that allows one machine to be compared with another."""


@dataclass(frozen=True)
class Gate:
    """A gate that fails if the interval supports `verdict` beyond `threshold` (0.02 is 2 %)."""

    verdict: Verdict
    threshold: float


def parse_gate(text: str) -> Gate:
    """Parse a gate such as `slower:2%`, `slower:0.02` or `slower` (2 %). Raises InputError for any other text."""
    match = re.fullmatch(r"(slower|faster)(?::(\d+(?:\.\d+)?)(%?))?", text.strip())
    if match is None:
        raise InputError(f"--fail-if {text!r} is not a valid gate; use, for example, slower:2%")
    number = float(match[2]) / (100.0 if match[3] else 1.0) if match[2] else THRESHOLD
    if number >= 1.0:
        raise InputError(f"--fail-if {text!r}: a threshold of {number:.0%} is too large; use, for example, slower:2%")
    return Gate(Verdict(match[1]), number)


def compare_sweeps(
    before: tuple[Iterable[RunRow], Manifest], after: tuple[Iterable[RunRow], Manifest], across: Collection[str] = ()
) -> SweepComparison:
    """Compare the common settings of two sweeps. Each sweep is passed as the runs that `collect` returned and its plan.

    Settings are matched by name, so their configs are identical. Differences in hardware or public versions are
    rejected unless listed in `across`. Differences in the sources of the user's packages only add a doubt, because they
    are expected between two commits. The rate metric, threshold and confidence are taken from the sweep `after`.
    """
    runs, manifest = sorted_runs(after[0]), after[1]
    metric = rate_metric_of(manifest, runs)
    old, new = _Side.of("before", before[1], sorted_runs(before[0]), metric), _Side.of("after", manifest, runs, metric)
    earlier: dict[str, list[SettingRuns]] = {}
    for group in old.groups:
        earlier.setdefault(group.setting, []).append(group)
    pairs = []  # each setting is paired with its earlier runs, on the same hardware if possible
    for group in new.groups:
        if group.planned.unsupported is None and (candidates := earlier.get(group.setting)):
            same = (candidate for candidate in candidates if candidate.hardware == group.hardware)
            pairs.append((next(same, candidates[0]), group))
    options = manifest.options.analysis
    family = Family(max(1, len(pairs)), options.confidence)
    return SweepComparison(
        before=before[1].sweep,
        after=manifest.sweep,
        family=family.size,
        confidence=family.confidence,
        threshold=options.threshold,
        rate_unit=new.groups[0].rate_unit if new.groups else "1/s",
        rows=tuple(
            _row(
                ours,
                theirs,
                family,
                options.threshold,
                (*across, *options.across),
                old.doubts(ours) + new.doubts(theirs),
            )
            for ours, theirs in pairs
        ),
        only_before=old.missing_in(new),
        only_after=new.missing_in(old),
    )


@dataclass(frozen=True)
class _Side:
    """One of the two sweeps, with the sweep-wide facts that its settings' doubts depend on."""

    name: str
    groups: Sequence[SettingRuns]
    outlying: Collection[str]
    overlapping: Collection[str]

    @classmethod
    def of(cls, when: str, manifest: Manifest, rows: Sequence[RunRow], metric: str) -> _Side:
        groups = group_runs(manifest, rows, metric)
        return cls(f"{when} ({manifest.sweep})", groups, outlying_runs(groups), overlapping_runs(rows))

    def doubts(self, group: SettingRuns) -> list[Doubt]:
        """Return the doubts about one of the settings, prefixed with this side's name."""
        doubts = setting_doubts(group, self.outlying, self.overlapping)
        return [replace(doubt, message=f"{self.name}: {doubt.message}") for doubt in doubts]

    def missing_in(self, other: _Side) -> tuple[str, ...]:
        """Return the labels of this side's settings that are missing from the other side."""
        settings = {group.setting for group in other.groups}
        return tuple(dict.fromkeys(group.label for group in self.groups if group.setting not in settings))


def _row(
    old: SettingRuns,
    new: SettingRuns,
    family: Family,
    threshold: float,
    across: Collection[str],
    run_doubts: Sequence[Doubt],
) -> ComparedSetting:
    ratio, decision, doubts = None, Verdict.not_measured, []
    missing = next((side for side in (old, new) if not side.rated), None)
    sources = {package for side in (old, new) for run in side.measured for package in run.sources}
    if missing is not None:
        reason = f"{'before' if missing is old else 'after'}: {outcome_summary(missing)}"
    elif refusal := (
        incompatibility(new, old, (), (*across, *sources))
        or (single_machine_refusal(old, new) if MACHINE not in across else None)
    ):
        decision, reason = Verdict.refused, refusal
    else:
        interval = welch_interval(list(new.log_rates.values()), list(old.log_rates.values()), family)
        ratio = exponential_estimate(with_search_brackets(new, old, interval), "1", family)
        decision, reason = verdict(ratio, threshold, new.rate_metric)
        doubts = [doubt for doubt in (build_doubt(new, old), source_doubt(new, old)) if doubt is not None]
    return ComparedSetting(
        setting=new.setting,
        label=new.label,
        axes=new.planned.axes,
        before=rate_estimate(old, family.confidence),
        after=rate_estimate(new, family.confidence),
        ratio=ratio,
        verdict=decision,
        reason=reason,
        doubts=tuple(dict.fromkeys((*doubts, *run_doubts))),
    )


def single_machine_refusal(old: SettingRuns, new: SettingRuns) -> str | None:
    """Explain why two sides, each measured on a different single machine, may not be compared; None otherwise.

    Machines of the same model still differ, and repeats on one machine reveal little about another. The machine is
    therefore the statistical unit, and each side has only one. Records without a machine identity are not rejected.
    """
    before, after = ({run.machine for run in side.rated} for side in (old, new))
    if len(before) > 1 or len(after) > 1 or before == after or None in before | after:
        return None
    return (
        f"the machine differs: {before.pop()} (before), {after.pop()} (after), and even machines of the same model "
        "differ: measure both sides on the same machine, or each on several; to compare them anyway, set "
        f"analysis.across=[{MACHINE}]"
    )


class GateState(StrEnum):
    """A gate's result for one comparison or for all of them together; members are ordered from worst to best."""

    regression = "regression"
    not_measured = "not measured"
    none_found = "none found"
    shown_absent = "shown absent"

    @property
    def exit_code(self) -> int:
        """The exit code of a command with a gate; runs that the gate does not cover do not affect it."""
        codes = {GateState.regression: EXIT_REGRESSION, GateState.not_measured: EXIT_INCOMPLETE}
        return codes.get(self, EXIT_OK)


@dataclass(frozen=True)
class GateResult:
    """A compared setting and its gate result."""

    setting: SettingFinding | ComparedSetting
    state: GateState

    @property
    def reason(self) -> str:
        """The reason for the setting's verdict."""
        return self.setting.reason if isinstance(self.setting, ComparedSetting) else self.setting.verdict_reason


def gate_findings(findings: Findings, baselines: Collection[str], gate: Gate) -> tuple[GateResult, ...]:
    """Return the gate results for the settings compared with one of the `baselines`."""
    return tuple(
        GateResult(setting, _state(setting, gate)) for setting in findings.settings if setting.setting not in baselines
    )


def gate_comparison(comparison: SweepComparison, gate: Gate) -> tuple[GateResult, ...]:
    """Return the gate results for the settings common to two sweeps that have a rate in at least one of them."""
    return tuple(GateResult(row, _state(row, gate)) for row in comparison.rows if row.before or row.after)


def worst(settings: Collection[GateResult]) -> GateState:
    """Return the worst state over all settings. An empty collection means that nothing was measured."""
    states = {result.state for result in settings}
    return next((state for state in GateState if state in states), GateState.not_measured)


def _state(setting: SettingFinding | ComparedSetting, gate: Gate) -> GateState:
    """Return the state that the entire interval supports.

    `not_measured` if there is no interval or the verdict rules out a judgement.
    """
    ratio = setting.ratio
    unfit = setting.verdict in (Verdict.disturbed, Verdict.not_yet, Verdict.refused)
    if ratio is None or ratio.low is None or ratio.high is None or unfit:
        return GateState.not_measured
    if verdict(ratio, gate.threshold)[0] is gate.verdict:
        return GateState.regression
    most = 1.0 + gate.threshold
    absent = ratio.low >= 1.0 / most if gate.verdict is Verdict.slower else ratio.high <= most
    return GateState.shown_absent if absent else GateState.none_found


def gate_message(settings: Sequence[GateResult], state: GateState) -> str:
    """Describe a gate's outcome in a sentence; `state` is the worst state over all `settings`."""
    here = [result for result in settings if result.state is state]
    of = f"{len(here)} of {count_of(len(settings), 'comparison')}"
    if state is GateState.regression:
        return f"failed by {'; '.join(result.setting.label for result in here)}"
    if state is GateState.not_measured:
        return f"{of} could not be judged: {here[0].reason if here else 'nothing could be compared'}"
    if state is GateState.none_found:
        return f"none was found, but {of} could still hide one: more blocks would reveal it"
    return f"shown absent in {'the only comparison' if len(settings) == 1 else f'all {len(settings)} comparisons'}"
