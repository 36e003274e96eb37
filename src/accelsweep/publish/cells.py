"""What a cell looks like in MLflow: a parent run whose aggregates are those of findings.json, nothing computed anew."""

from __future__ import annotations

from typing import Any

from accelsweep.core.documents import canonical_json, sha256_text
from accelsweep.core.findings import CellFinding, Estimate
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import PlannedCell
from accelsweep.publish.contents import cell_key, doubt_codes, doubt_lines, run_name
from accelsweep.publish.snapshot import Finished, Snapshot
from accelsweep.publish.wanted import NOTE, Wanted, metrics, milliseconds, params, tags


def cell_run(snapshot: Snapshot, cell: PlannedCell) -> Wanted | None:
    """Return the parent run of a cell, or None while nothing is known of it: no record, none running, supported."""
    runs = snapshot.runs_of.get(cell.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    starts = [item.started_at for item in finished]
    starts += [snapshot.running[run].since for run in runs if run in snapshot.running]
    if not starts and cell.unsupported is None:
        return None
    status = _status(snapshot, cell, runs, finished)
    ended = max((milliseconds(item.finished_at) for item in finished), default=snapshot.planned)
    found = snapshot.finding(cell.name)
    numbers = {"runs_planned": float(len(runs)), "runs_finished": float(len(finished))} | _aggregates(snapshot, found)
    words = tags(_tags(snapshot, cell, finished, found))
    name = run_name(cell.axes)
    return Wanted(
        key=cell_key(cell.name),
        name=name,
        source=cell.name,
        digest=sha256_text(canonical_json([name, status, metrics(numbers), words])),
        status=status,
        started=min(map(milliseconds, starts), default=snapshot.planned),
        ended=None if status == "RUNNING" else ended,
        tags=words,
        params=params(cell.axes),
        metrics=metrics(numbers),
    )


def _status(snapshot: Snapshot, cell: PlannedCell, runs: tuple[str, ...], finished: list[Finished]) -> str:
    """Return RUNNING while a repeat is measured, KILLED if some are missing, FAILED if none was measured."""
    if cell.unsupported is not None:
        return "FAILED"
    if any(run in snapshot.running for run in runs):
        return "RUNNING"
    if len(finished) < len(runs):
        return "RUNNING" if snapshot.live else "KILLED"
    return "FINISHED" if any(item.outcome is Outcome.measured for item in finished) else "FAILED"


def _aggregates(snapshot: Snapshot, found: CellFinding | None) -> dict[str, float | None]:
    if found is None or snapshot.findings is None:
        return {}
    rate = snapshot.findings.rate_metric
    numbers = {name: summary.median for name, summary in found.metrics.items()}
    numbers |= {f"{name}_median": numbers[name] for name in (rate, "quality") if name in numbers}
    numbers |= _interval(rate, found.rate)
    numbers |= _interval("speedup", found.speedup.ratio if found.speedup else None)
    numbers |= _interval("quality", found.quality)
    return numbers | {"runs_measured": float(found.measured)}


def _interval(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _tags(snapshot: Snapshot, cell: PlannedCell, finished: list[Finished], found: CellFinding | None) -> dict[str, Any]:
    outcomes = [cell.unsupported and Outcome.unsupported, *(item.outcome for item in finished)]
    counted = {outcome.value: outcomes.count(outcome) for outcome in outcomes if outcome}
    known = {
        "kind": "cell",
        "cell": cell.name,
        "baseline": "yes" if cell.name == snapshot.manifest.baseline else "no",
        "outcome": next(iter(counted)) if len(counted) == 1 else None,
        "outcomes": ", ".join(f"{outcome} {count}" for outcome, count in counted.items()),
        "reason": cell.unsupported,
        "mlflow.source.name": "accelsweep",
    }
    if found is None:
        return known | {NOTE: cell.unsupported and f"**unsupported**: {cell.unsupported}"}
    return {
        **known,
        "reason": cell.unsupported or "; ".join(found.reasons),
        "hardware": found.hardware,
        "verdict": found.verdict.value,
        "verdict_reason": found.verdict_reason,
        "quality_verdict": found.quality_verdict,
        "doubts": doubt_codes(found.doubts),
        NOTE: _note(found),
    }


def _note(found: CellFinding) -> str:
    lines = [f"**{found.verdict}**: {found.verdict_reason}"]
    lines += ["", *(f"* {reason}" for reason in found.reasons)] if found.reasons else []
    lines += ["", "Doubts:", "", *doubt_lines(found.doubts)] if found.doubts else []
    missing = [f"* `{name}`: {summary.reason}" for name, summary in found.metrics.items() if summary.median is None]
    lines += ["", "Not measured:", "", *missing] if missing else []
    return "\n".join(lines)
