"""Settings as MLflow runs, the parents of their repeats, with aggregates from findings.json.

A setting that ran on several kinds of hardware has several findings, but an MLflow run stores only one value per
metric. Such a run therefore omits the aggregates; its verdict gives the reason, and its description lists the hardware.
A setting whose runs were disturbed omits the headline's metrics, because a chart would show them without the doubt.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from accelsweep.config.setting import label
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.records.plan import PlannedSetting
from accelsweep.results import Outcome
from accelsweep.tracking.mlflow_run import (
    NOTE_TAG,
    Artifact,
    MlflowRun,
    epoch_ms,
    storable_text,
    to_metrics,
    to_params,
    to_tags,
)
from accelsweep.tracking.repeat_runs import (
    CREATED_BY,
    doubt_codes,
    run_name,
    setting_key,
    setting_tags,
)
from accelsweep.tracking.setting_notes import all_reasons, interval_text, is_disturbed, memory_of, setting_note
from accelsweep.tracking.snapshot import FinishedRun, Snapshot, merge_tags

UNSUPPORTED_KEY = "group:unsupported"
"""The key of the run that groups the settings that cannot run."""

SETTINGS_TABLE = "settings.csv"
"""The report's table of settings, with one row per setting and kind of hardware."""

_GREY = "#8f8f8f"
_MAX_TEXT = 10_000_000
_MAX_LISTED = 20


def unsupported_group_run(snapshot: Snapshot) -> MlflowRun | None:
    """Return the parent run for all settings that cannot run, or None if all can.

    Its start time is earlier than that of any other run in the sweep, which places it at the end of MLflow's list.
    """
    settings: dict[str, list[str]] = {}
    for setting in snapshot.manifest.settings:
        if (reason := unsupported_reason(snapshot, setting)) is not None:
            settings.setdefault(reason, []).append(label(setting.axes))
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


def report_rows(snapshot: Snapshot) -> dict[str, list[Mapping[str, str]]]:
    """Return the rows of the report's table of settings by setting; empty if there is no report."""
    try:
        with (snapshot.folder.report / SETTINGS_TABLE).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError:
        return {}
    grouped: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        grouped.setdefault(row.get("setting", ""), []).append(row)
    return grouped


def setting_run(
    snapshot: Snapshot, setting: PlannedSetting, report_link: str | None = None, rows: Sequence[Mapping[str, str]] = ()
) -> MlflowRun | None:
    """Return the MLflow run of a setting; None for a runnable setting without a record or running repeat.

    `report_link` leads from a description to the report, and `rows` are the setting's rows in its table of settings.
    """
    runs = snapshot.runs_by_setting.get(setting.name, ())
    finished = [snapshot.finished[run] for run in runs if run in snapshot.finished]
    starts = [run.started for run in finished]
    starts += [epoch_ms(snapshot.running[run].since) for run in runs if run in snapshot.running]
    if not starts and setting.unsupported is None:
        return None
    unsupported = unsupported_reason(snapshot, setting)
    findings = snapshot.findings_of(setting.name)
    left_out = sum(finding.outcomes.get(Outcome.decided, 0) for finding in findings)
    status = "FINISHED" if unsupported is not None else _status(snapshot, runs, finished, left_out)
    ended = max((run.ended for run in finished), default=snapshot.planned)
    metrics = to_metrics(_aggregates(snapshot, findings))
    if findings or not snapshot.live:  # MLflow keeps the order in which a run's metrics were first logged
        metrics |= {"runs_planned": float(len(runs)), "runs_finished": float(len(finished))}
    tags = to_tags(_tags(snapshot, setting, finished, findings, unsupported, report_link)) | setting_tags(setting)
    artifacts = _artifacts(finished, rows) if findings else ()
    name, params = run_name(setting.axes), to_params(setting.axes)
    return MlflowRun(
        key=setting_key(setting.name),
        name=name,
        source=setting.name,
        digest=sha256_text(canonical_json([name, status, params, metrics, tags, [str(a.source) for a in artifacts]])),
        status=status,
        started=min(starts, default=snapshot.planned),
        ended=None if status == "RUNNING" else ended,
        tags=tags,
        params=params,
        metrics=metrics,
        artifacts=artifacts,
        parent=UNSUPPORTED_KEY if unsupported is not None else None,
    )


def _status(snapshot: Snapshot, runs: Sequence[str], finished: Sequence[FinishedRun], left_out: int) -> str:
    """Return RUNNING while a repeat is being measured, KILLED if any repeat is missing, FAILED if none was measured.

    Repeats that were `left_out`, because earlier ones had decided the comparison, are not missing.
    """
    if any(run in snapshot.running for run in runs):
        return "RUNNING"
    if len(finished) + left_out < len(runs):
        return "RUNNING" if snapshot.live else "KILLED"
    return "FINISHED" if any(run.outcome is Outcome.measured for run in finished) else "FAILED"


def _artifacts(finished: Sequence[FinishedRun], rows: Sequence[Mapping[str, str]]) -> tuple[Artifact, ...]:
    """Return the config of the first repeat, and the setting's rows of the report, one line per column."""
    artifacts = []
    if finished:
        config = yaml.safe_dump(dict(finished[0].config), allow_unicode=True)
        artifacts.append(Artifact(storable_text(config, limit=_MAX_TEXT), "config.yaml"))
    if rows:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["column", *(["value"] if len(rows) == 1 else [row.get("hardware", "") for row in rows])])
        writer.writerows([name, *values] for name in rows[0] if any(values := [row[name] for row in rows]))
        artifacts.append(Artifact(storable_text(table.getvalue(), limit=_MAX_TEXT), "report_row.csv"))
    return tuple(artifacts)


def _aggregates(snapshot: Snapshot, findings: Sequence[SettingFinding]) -> dict[str, float | None]:
    """Return a setting's metrics in the order in which MLflow shows them: the headline first."""
    if not findings or snapshot.findings is None:
        return {}
    measured = {"runs_measured": float(sum(finding.measured for finding in findings))}
    if len(findings) > 1:
        return {**measured}
    (finding,) = findings
    rate = snapshot.findings.rate_metric
    medians = {name: summary.median for name, summary in finding.metrics.items()}
    if is_disturbed(finding):
        return {name: value for name, value in medians.items() if name not in (rate, "quality")} | measured
    headline = {"speedup": finding.ratio, rate: finding.rate, "quality": finding.quality}
    others = {"quality_difference": finding.quality_difference, **finding.costs}
    metrics: dict[str, float | None] = {name: estimate.value for name, estimate in headline.items() if estimate}
    if finding.verdict is Verdict.baseline and finding.rate:
        metrics = {"speedup": 1.0, **metrics}
    metrics |= memory_of(snapshot.findings, finding)
    for name, estimate in (headline | others).items():
        if estimate is not None:
            metrics |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    metrics |= {f"{name}_median": medians[name] for name in (rate, "quality") if name in medians}
    return metrics | {name: value for name, value in medians.items() if name not in metrics} | measured


def _tags(
    snapshot: Snapshot,
    setting: PlannedSetting,
    finished: Sequence[FinishedRun],
    findings: Sequence[SettingFinding],
    unsupported: str | None,
    report_link: str | None,
) -> dict[str, Any]:
    outcomes = [Outcome.unsupported] if setting.unsupported else []
    outcomes += [run.outcome for run in finished]
    counts = {outcome.value: outcomes.count(outcome) for outcome in outcomes}
    tags: dict[str, Any] = {
        "kind": "setting" if unsupported is None else "unsupported",
        "baseline": "yes" if setting.name in snapshot.baselines else "no",
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
            "interval": interval_text(finding.ratio),
            "verdict_reason": finding.verdict_reason,
            "quality_verdict": finding.quality_verdict,
        }
    else:
        tags["verdict"] = f"run on {len(findings)} kinds of hardware"
    return tags | {
        "reason": unsupported or "; ".join(all_reasons(findings)),
        "hardware": "; ".join(finding.hardware for finding in findings if finding.hardware),
        "doubts": doubt_codes(doubt for finding in findings for doubt in finding.doubts),
        "recommended": "yes" if recommended else "no",
        "confidence": rules.confidence,
        "threshold": rules.threshold,
        NOTE_TAG: setting_note(snapshot.findings, findings, report_link),
    }


def _list(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _MAX_LISTED} more"] if len(names) > _MAX_LISTED else []
    return "; ".join([*names[:_MAX_LISTED], *more])
