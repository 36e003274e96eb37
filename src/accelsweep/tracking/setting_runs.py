"""Settings as MLflow runs, the parents of their repeats, with aggregates from findings.json.

A setting that ran on several kinds of hardware has several findings, but an MLflow run stores only one value per
metric. Such a run therefore omits the aggregates; its verdict gives the reason, and its description lists the hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelsweep.config.setting import describe_axes
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.records.plan import PlannedSetting
from accelsweep.results import Outcome
from accelsweep.significant_digits import UNKNOWN, interval_digits, is_uninformative, significant
from accelsweep.tracking.mlflow_run import NOTE_TAG, MlflowRun, epoch_ms, to_metrics, to_params, to_tags
from accelsweep.tracking.repeat_runs import CREATED_BY, doubt_codes, note_sections, run_name, setting_key, setting_tags
from accelsweep.tracking.snapshot import FinishedRun, Snapshot, merge_tags

UNSUPPORTED_KEY = "group:unsupported"
"""The key of the run that groups the settings that cannot run."""

_GREY = "#8f8f8f"
_MAX_LISTED = 20


def unsupported_group_run(snapshot: Snapshot) -> MlflowRun | None:
    """Return the parent run for all settings that cannot run, or None if all can.

    Its start time is earlier than that of any other run in the sweep, which places it at the end of MLflow's list.
    """
    settings: dict[str, list[str]] = {}
    for setting in snapshot.manifest.settings:
        if (reason := unsupported_reason(snapshot, setting)) is not None:
            settings.setdefault(reason, []).append(describe_axes(setting.axes))
    if not settings:
        return None
    name = f"cannot run here ({sum(map(len, settings.values()))})"
    lines = [f"* {reason}: {_list(names)}" for reason, names in settings.items()]
    note = "\n".join(["These settings cannot run here, so they were not measured.", "", *lines])
    tags = to_tags({"kind": "group", "mlflow.runColor": _GREY, NOTE_TAG: note, **CREATED_BY})
    starts = [run.started for run in snapshot.finished.values()]
    starts += [epoch_ms(run.since) for run in snapshot.running.values()]
    started = min([snapshot.planned, *starts]) - 1
    return MlflowRun(
        key=UNSUPPORTED_KEY,
        name=name,
        source=UNSUPPORTED_KEY,
        digest=sha256_text(canonical_json([name, tags])),
        status="FINISHED",
        started=started,
        ended=started,
        tags=tags,
    )


def unsupported_reason(snapshot: Snapshot, setting: PlannedSetting) -> str | None:
    """Return why a setting cannot run, according to the plan or to all of its finished repeats; None if it can."""
    if setting.unsupported is not None:
        return setting.unsupported
    runs = snapshot.runs_by_setting.get(setting.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    if not finished or any(run in snapshot.running for run in runs):
        return None
    if any(run.outcome is not Outcome.unsupported for run in finished):
        return None
    return next((run.reason for run in finished if run.reason), "its record gives no reason")


def setting_run(snapshot: Snapshot, setting: PlannedSetting) -> MlflowRun | None:
    """Return the MLflow run of a setting; None for a runnable setting without a record or running repeat."""
    runs = snapshot.runs_by_setting.get(setting.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    starts = [run.started for run in finished]
    starts += [epoch_ms(snapshot.running[run].since) for run in runs if run in snapshot.running]
    if not starts and setting.unsupported is None:
        return None
    unsupported = unsupported_reason(snapshot, setting)
    status = "FINISHED" if unsupported is not None else _status(snapshot, runs, finished)
    ended = max((run.ended for run in finished), default=snapshot.planned)
    findings = snapshot.findings_of(setting.name)
    counts = {"runs_planned": float(len(runs)), "runs_finished": float(len(finished))}
    metrics = to_metrics(counts | _aggregates(snapshot, findings))
    tags = to_tags(_tags(snapshot, setting, finished, findings, unsupported)) | setting_tags(setting)
    name, params = run_name(setting.axes), to_params(setting.axes)
    return MlflowRun(
        key=setting_key(setting.name),
        name=name,
        source=setting.name,
        digest=sha256_text(canonical_json([name, status, params, metrics, tags])),
        status=status,
        started=min(starts, default=snapshot.planned),
        ended=None if status == "RUNNING" else ended,
        tags=tags,
        params=params,
        metrics=metrics,
        parent=UNSUPPORTED_KEY if unsupported is not None else None,
    )


def _status(snapshot: Snapshot, runs: Sequence[str], finished: Sequence[FinishedRun]) -> str:
    """Return RUNNING while a repeat is being measured, KILLED if any repeat is missing, FAILED if none was measured."""
    if any(run in snapshot.running for run in runs):
        return "RUNNING"
    if len(finished) < len(runs):
        return "RUNNING" if snapshot.live else "KILLED"
    return "FINISHED" if any(run.outcome is Outcome.measured for run in finished) else "FAILED"


def _aggregates(snapshot: Snapshot, findings: Sequence[SettingFinding]) -> dict[str, float | None]:
    if not findings or snapshot.findings is None:
        return {}
    measured = {"runs_measured": float(sum(finding.measured for finding in findings))}
    if len(findings) > 1:
        return {**measured}
    (finding,) = findings
    rate = snapshot.findings.rate_metric
    metrics = {name: summary.median for name, summary in finding.metrics.items()}
    metrics |= {f"{name}_median": metrics[name] for name in (rate, "quality") if name in metrics}
    estimates = {"speedup": finding.ratio, "quality": finding.quality, "quality_difference": finding.quality_difference}
    for name, estimate in {rate: finding.rate, **estimates, **finding.costs}.items():
        if estimate is not None:
            metrics |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        elif name == "speedup" and finding.verdict is Verdict.baseline and finding.rate:
            metrics["speedup"] = 1.0
    return metrics | measured  # MLflow lists the metrics in this order


def _tags(
    snapshot: Snapshot,
    setting: PlannedSetting,
    finished: Sequence[FinishedRun],
    findings: Sequence[SettingFinding],
    unsupported: str | None,
) -> dict[str, Any]:
    outcomes = [Outcome.unsupported] if setting.unsupported else []
    outcomes += [run.outcome for run in finished]
    counts = {outcome.value: outcomes.count(outcome) for outcome in outcomes}
    tags: dict[str, Any] = {
        "kind": "setting" if unsupported is None else "unsupported",
        "baseline": "yes" if setting.name in snapshot.manifest.baselines else "no",
        "outcome": next(iter(counts)) if len(counts) == 1 else None,
        "outcomes": ", ".join(f"{outcome} {count}" for outcome, count in counts.items()),
        "reason": unsupported,
        **merge_tags(run.provenance for run in finished),
        **CREATED_BY,
    }
    if not findings or snapshot.findings is None:
        return tags | {NOTE_TAG: unsupported and f"**unsupported**: {unsupported}"}
    choice = snapshot.findings.recommendation.choice
    recommended = choice is not None and any(choice.chooses(finding) for finding in findings)
    rules = snapshot.manifest.options.analysis
    if len(findings) == 1:
        (finding,) = findings
        tags |= {
            "verdict": finding.verdict.value,
            "verdict_reason": finding.verdict_reason,
            "quality_verdict": finding.quality_verdict,
        }
    else:
        tags["verdict"] = f"run on {len(findings)} kinds of hardware"
    return tags | {
        "reason": unsupported or "; ".join(_reasons(findings)),
        "hardware": "; ".join(finding.hardware for finding in findings if finding.hardware),
        "doubts": doubt_codes(doubt for finding in findings for doubt in finding.doubts),
        "recommended": "yes" if recommended else "no",
        "confidence": rules.confidence,
        "threshold": rules.threshold,
        NOTE_TAG: _note(findings),
    }


def _reasons(findings: Sequence[SettingFinding]) -> list[str]:
    return list(dict.fromkeys(reason for finding in findings for reason in finding.reasons))


def _note(findings: Sequence[SettingFinding]) -> str:
    verdicts = [f"**{finding.verdict}**: {finding.verdict_reason}" for finding in findings]
    if len(findings) == 1:
        lines = verdicts
        missing = {name: summary.reason for name, summary in findings[0].metrics.items() if summary.median is None}
    else:
        lines = [f"This setting was run on {len(findings)} kinds of hardware; see the report for a comparison.", ""]
        for finding, verdict in zip(findings, verdicts, strict=True):
            lines.append(f"* {finding.hardware}: {_rate(finding.rate)}; {verdict}")
        missing = {}
    if reasons := _reasons(findings):
        lines += ["", *(f"* {reason}" for reason in reasons)]
    doubts = [doubt for finding in findings for doubt in finding.doubts]
    return "\n".join(lines + note_sections(doubts, missing))


def _rate(rate: Estimate | None) -> str:
    if rate is None:
        return "no rate"
    if rate.low is None or rate.high is None:
        return f"{significant(rate.value)} {rate.unit} (no interval: {rate.reason})"
    if is_uninformative(rate.low, rate.high):
        return UNKNOWN
    value, low, high = interval_digits(rate.value, rate.low, rate.high)
    return f"{value} {rate.unit} [{low}, {high}]"


def _list(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else []
    return "; ".join([*names[:_MAX_LISTED], *more])
