"""A cell in MLflow: a parent run whose aggregates are those of findings.json, nothing computed anew.

A cell that ran on several kinds of hardware has a finding for each. A run in MLflow has one value per metric, so such a
cell has no aggregates there. Its verdict says so, and its description lists the kinds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from accelsweep.config.setting import axes_in_words
from accelsweep.json_documents import canonical_json, sha256_text
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding
from accelsweep.records.plan import PlannedCell
from accelsweep.records.run_record import Outcome
from accelsweep.significant_digits import UNKNOWN, interval_digits, says_nothing, significant
from accelsweep.tracking.mlflow_run import NOTE, Wanted, metrics, milliseconds, params, tags
from accelsweep.tracking.repeat_runs import cell_key, cell_tags, doubt_codes, doubt_lines, run_name
from accelsweep.tracking.sweep_snapshot import Finished, Snapshot, common

# Settings that cannot run, in MLflow: one grey group at the end of the list, which holds them with their reasons.

GROUP_KEY = "group:unsupported"

SETTING_KIND = "unsupported"

_GROUP_KIND = "group"

_GREY = {"mlflow.runColor": "#8f8f8f"}
"""The colour that MLflow's page gives the run wherever it draws one."""

_MOST_NAMED = 20


def unsupported_reason(snapshot: Snapshot, cell: PlannedCell) -> str | None:
    """Return why a setting cannot run, as the plan or each of its finished repeats says, or None where it may run."""
    if cell.unsupported is not None:
        return cell.unsupported
    runs = snapshot.runs_of.get(cell.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    if not finished or any(run in snapshot.running for run in runs):
        return None
    if any(item.outcome is not Outcome.unsupported for item in finished):
        return None
    return next((item.reason for item in finished if item.reason), "its record gives no reason")


def group_run(snapshot: Snapshot) -> Wanted | None:
    """Return the run above all settings that cannot run, or None where each can.

    It begins before every other run of the sweep, since MLflow's list shows the latest run first.
    """
    settings: dict[str, list[str]] = {}
    for cell in snapshot.manifest.cells:
        if (why := unsupported_reason(snapshot, cell)) is not None:
            settings.setdefault(why, []).append(axes_in_words(cell.axes))
    if not settings:
        return None
    name = f"cannot run here ({sum(map(len, settings.values()))})"
    words = tags({"kind": _GROUP_KIND, "mlflow.source.name": "accelsweep", NOTE: _note_of_group(settings)}) | _GREY
    begun = before_all(snapshot)
    return Wanted(
        key=GROUP_KEY,
        name=name,
        source=GROUP_KEY,
        digest=sha256_text(canonical_json([name, words])),
        status="FINISHED",
        started=begun,
        ended=begun,
        tags=words,
    )


def before_all(snapshot: Snapshot) -> int:
    """Return a time before the plan and before every run, in milliseconds since 1970."""
    starts = [milliseconds(item.started_at) for item in snapshot.finished.values()]
    starts += [milliseconds(item.since) for item in snapshot.running.values()]
    return min([snapshot.planned, *starts]) - 1


def _note_of_group(settings: Mapping[str, Sequence[str]]) -> str:
    """Return each reason once, with the settings that it keeps from running."""
    lines = [f"* {why}: {_listed(names)}" for why, names in settings.items()]
    return "\n".join(["These settings cannot run here, so they were not measured.", "", *lines])


def _listed(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return "; ".join([*names[:_MOST_NAMED], *more])


def cell_run(snapshot: Snapshot, cell: PlannedCell) -> Wanted | None:
    """Return the parent run of a cell, or None while a supported one has no record and no running repeat."""
    runs = snapshot.runs_of.get(cell.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    starts = [item.started_at for item in finished]
    starts += [snapshot.running[run].since for run in runs if run in snapshot.running]
    if not starts and cell.unsupported is None:
        return None
    cannot = unsupported_reason(snapshot, cell)
    status = "FINISHED" if cannot is not None else _status(snapshot, runs, finished)
    ended = max((milliseconds(item.finished_at) for item in finished), default=snapshot.planned)
    found = snapshot.findings_of(cell.name)
    numbers = {"runs_planned": float(len(runs)), "runs_finished": float(len(finished))} | _aggregates(snapshot, found)
    words = tags(_tags(snapshot, cell, finished, found, cannot)) | cell_tags(cell)
    name, axes = run_name(cell.axes), params(cell.axes)
    return Wanted(
        key=cell_key(cell.name),
        name=name,
        source=cell.name,
        digest=sha256_text(canonical_json([name, status, axes, metrics(numbers), words])),
        status=status,
        started=min(map(milliseconds, starts), default=snapshot.planned),
        ended=None if status == "RUNNING" else ended,
        tags=words,
        params=axes,
        metrics=metrics(numbers),
        parent=GROUP_KEY if cannot is not None else None,
    )


def _status(snapshot: Snapshot, runs: tuple[str, ...], finished: list[Finished]) -> str:
    """Return RUNNING while a repeat is measured, KILLED if some are missing, FAILED if none was measured."""
    if any(run in snapshot.running for run in runs):
        return "RUNNING"
    if len(finished) < len(runs):
        return "RUNNING" if snapshot.live else "KILLED"
    return "FINISHED" if any(item.outcome is Outcome.measured for item in finished) else "FAILED"


def _aggregates(snapshot: Snapshot, found: Sequence[CellFinding]) -> dict[str, float | None]:
    if not found or snapshot.findings is None:
        return {}
    measured = {"runs_measured": float(sum(one.measured for one in found))}
    if len(found) > 1:
        return {**measured}
    (only,) = found
    rate = snapshot.findings.rate_metric
    numbers = {name: summary.median for name, summary in only.metrics.items()}
    numbers |= {f"{name}_median": numbers[name] for name in (rate, "quality") if name in numbers}
    numbers |= _interval(rate, only.rate)
    numbers |= _interval("speedup", only.ratio)
    numbers |= {"speedup": 1.0} if only.verdict is Verdict.baseline and only.rate else {}
    numbers |= _interval("quality", only.quality)
    numbers |= _interval("quality_difference", only.quality_difference)
    for name, cost in only.costs.items():
        numbers |= _interval(name, cost)
    return numbers | measured


def _interval(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _tags(
    snapshot: Snapshot,
    cell: PlannedCell,
    finished: list[Finished],
    found: Sequence[CellFinding],
    cannot: str | None,
) -> dict[str, Any]:
    outcomes = [cell.unsupported and Outcome.unsupported, *(item.outcome for item in finished)]
    counted = {outcome.value: outcomes.count(outcome) for outcome in outcomes if outcome}
    known = {
        "kind": "cell" if cannot is None else SETTING_KIND,
        "baseline": "yes" if cell.name in snapshot.manifest.baselines else "no",
        "outcome": next(iter(counted)) if len(counted) == 1 else None,
        "outcomes": ", ".join(f"{outcome} {count}" for outcome, count in counted.items()),
        "reason": cannot,
        "mlflow.source.name": "accelsweep",
        **common(item.origin for item in finished),
    }
    if not found:
        return known | {NOTE: cannot and f"**unsupported**: {cannot}"}
    rules = snapshot.manifest.settings.analysis
    return {
        **known,
        "reason": cannot or "; ".join(_reasons(found)),
        "hardware": "; ".join(one.hardware for one in found if one.hardware),
        "doubts": doubt_codes(tuple(doubt for one in found for doubt in one.doubts)),
        **_verdict(found),
        "recommended": _recommended(snapshot, found),
        "confidence": rules.confidence,
        "threshold": rules.threshold,
        NOTE: _note(found),
    }


def _verdict(found: Sequence[CellFinding]) -> dict[str, str]:
    if len(found) > 1:
        return {"verdict": f"run on {len(found)} kinds of hardware"}
    (only,) = found
    return {
        "verdict": only.verdict.value,
        "verdict_reason": only.verdict_reason,
        "quality_verdict": only.quality_verdict,
    }


def _recommended(snapshot: Snapshot, found: Sequence[CellFinding]) -> str:
    choice = snapshot.findings.recommendation.choice if snapshot.findings else None
    return "yes" if choice is not None and any(choice.chooses(one) for one in found) else "no"


def _reasons(found: Sequence[CellFinding]) -> list[str]:
    return list(dict.fromkeys(reason for one in found for reason in one.reasons))


def _note(found: Sequence[CellFinding]) -> str:
    lines = _kinds(found) if len(found) > 1 else [f"**{found[0].verdict}**: {found[0].verdict_reason}"]
    lines += ["", *(f"* {reason}" for reason in reasons)] if (reasons := _reasons(found)) else []
    doubts = dict.fromkeys(line for one in found for line in doubt_lines(one.doubts))
    lines += ["", "Doubts:", "", *doubts] if doubts else []
    metrics = found[0].metrics if len(found) == 1 else {}
    missing = [f"* `{name}`: {summary.reason}" for name, summary in metrics.items() if summary.median is None]
    lines += ["", "Not measured:", "", *missing] if missing else []
    return "\n".join(lines)


def _kinds(found: Sequence[CellFinding]) -> list[str]:
    """Return a line for each kind of hardware, below one that says why the run has no aggregates."""
    head = f"This setting was run on {len(found)} kinds of hardware; see the report for a comparison."
    lines = [f"* {one.hardware}: {_rate(one.rate)}; **{one.verdict}**: {one.verdict_reason}" for one in found]
    return [head, "", *lines]


def _rate(rate: Estimate | None) -> str:
    if rate is None:
        return "no rate"
    if rate.low is None or rate.high is None:
        return f"{significant(rate.value)} {rate.unit} (no interval: {rate.reason})"
    if says_nothing(rate.low, rate.high):
        return UNKNOWN
    middle, low, high = interval_digits(rate.value, rate.low, rate.high)
    return f"{middle} {rate.unit} [{low}, {high}]"
