"""Claims put to the test: what was claimed, what is measured here, and whether that agrees. None is ever dropped.

A claim whose cells were not planned, cannot run here, were not measured or may not be compared is `not testable here`,
with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any

from accelsweep.analyse.compare import endings
from accelsweep.analyse.likeness import difference
from accelsweep.analyse.runs import CellRuns
from accelsweep.analyse.statistics import Family, exponential_estimate, log_ratio, mean, verdict
from accelsweep.core.claims import Claim, ClaimVerdict
from accelsweep.core.findings import ClaimFinding, Estimate, Verdict

_ABSENT = object()
_WORDS = {
    Verdict.same: ClaimVerdict.agrees,
    Verdict.faster: ClaimVerdict.more,
    Verdict.slower: ClaimVerdict.less,
    Verdict.undecided: ClaimVerdict.undecided,
}


def judge_claims(
    claims: Sequence[Claim], groups: Sequence[CellRuns], confidence: float, across: Collection[str] = ()
) -> tuple[ClaimFinding, ...]:
    """Return each claim beside what was measured. The intervals of all claims hold together at this confidence.

    A claim compares cells that differ in what it selects them by: other fields of the config, the hardware of one
    accelerator and the software must be equal, but for the fields in `across`.
    """
    family = Family(max(1, len(claims)), confidence)
    return tuple(_tested(claim, groups, family, across) for claim in claims)


def _tested(claim: Claim, groups: Sequence[CellRuns], family: Family, across: Collection[str]) -> ClaimFinding:
    sides = [[group for group in groups if selected(group, wanted)] for wanted in (claim.cell, claim.against)]
    for wanted, side in zip((claim.cell, claim.against), sides, strict=True):
        if reason := _untestable(claim, wanted, side):
            return _finding(claim, ClaimVerdict.not_testable, reason)
    allowed = (*across, *claim.cell, *claim.against)
    pairs = [(ours, theirs) for ours, theirs in product(*sides) if _logs(ours, claim) and _logs(theirs, claim)]
    refusals = [difference(ours, theirs, allowed, across) for ours, theirs in pairs]
    comparable = [pair for pair, refusal in zip(pairs, refusals, strict=True) if refusal is None]
    if not comparable:
        return _finding(claim, ClaimVerdict.not_testable, str(refusals[0]))
    ours, theirs = max(comparable, key=lambda pair: len(pair[0].blocks & pair[1].blocks))
    interval, _ = log_ratio(_logs(ours, claim), _logs(theirs, claim), family)
    measured = exponential_estimate(interval, "1", family)
    relative = exponential_estimate(interval, "1", family, 1.0 / claim.claimed)
    decision = _WORDS[verdict(relative, claim.tolerance)[0]]
    return _finding(claim, decision, _why(claim, measured), measured, ours, theirs)


def selected(group: CellRuns, wanted: Mapping[str, Any]) -> bool:
    """Return whether a cell has every one of these values, on its axes or in its config."""
    return all(_value(group, key) == value for key, value in wanted.items())


def _value(group: CellRuns, key: str) -> Any:
    if key in group.planned.axes:
        return group.planned.axes[key]
    found: Any = group.config
    for part in key.split("."):
        found = found.get(part, _ABSENT) if isinstance(found, Mapping) else _ABSENT
    return found


def _untestable(claim: Claim, wanted: Mapping[str, Any], side: Sequence[CellRuns]) -> str | None:
    """Return why there is nothing to put on this side of the ratio, or None if there is."""
    words = ", ".join(f"{key}={value}" for key, value in wanted.items())
    if not side:
        return f"no cell of this sweep has {words}"
    if len({group.cell for group in side}) > 1:
        return f"{len(side)} cells of this sweep have {words}; the claim must name one"
    if any(_logs(group, claim) for group in side):
        return None
    measured = next((group for group in side if group.measured), None)
    return f"{words}: {f'{claim.metric} was not measured' if measured else endings(side[0])}"


def _logs(group: CellRuns, claim: Claim) -> dict[str, float]:
    """Return the natural logarithm of the claim's metric per block; runs that share a block are averaged."""
    found: dict[str, list[float]] = {}
    for run in group.measured:
        value = run.value(claim.metric)
        if value is not None and value > 0:
            found.setdefault(run.block or "", []).append(math.log(value))
    return {block: mean(values) for block, values in found.items()}


def _why(claim: Claim, measured: Estimate) -> str:
    return claim.differs or measured.reason or "the source gives no reason to expect a difference"


def _finding(
    claim: Claim,
    decision: ClaimVerdict,
    reason: str,
    measured: Estimate | None = None,
    ours: CellRuns | None = None,
    theirs: CellRuns | None = None,
) -> ClaimFinding:
    return ClaimFinding(
        id=claim.id,
        claim=claim.claim,
        source=claim.source,
        metric=claim.metric,
        claimed=claim.claimed,
        tolerance=claim.tolerance,
        measured=measured,
        verdict=decision,
        reason=reason,
        cell=ours.cell if ours else None,
        against=theirs.cell if theirs else None,
        labels=(ours.label, theirs.label) if ours and theirs else (),
    )
