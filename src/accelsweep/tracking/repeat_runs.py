"""Builds MLflow runs for repeats and reports; all numbers are copied from records, and none are computed.

Tags with a plain name (`outcome`, `hardware`, `verdict`) are for users; those that start with `accelsweep.` are for the
publisher's own use. Metrics have the same names as in records, including the unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
from pydantic_core import to_jsonable_python

from accelsweep.config.setting import label
from accelsweep.errors import DamagedFile
from accelsweep.metrics import MEMORY_METRICS
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.layout import LOG_FILE, PAGE, SweepFolder
from accelsweep.records.plan import PlannedSetting
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Record, steps_damage
from accelsweep.results import Doubt, LearningCurve, LearningPoint, Outcome
from accelsweep.run_config import Run
from accelsweep.tasks import compared_rate
from accelsweep.tracking.mlflow_run import (
    NOTE_TAG,
    Artifact,
    MetricPoint,
    MlflowRun,
    epoch_ms,
    storable_text,
    to_metrics,
    to_params,
    to_tags,
)
from accelsweep.tracking.snapshot import FinishedRun, RunningRun, Snapshot, run_digest

RUNNING_SOURCE = "running"
"""The prefix of `source` for a run without a record."""

CREATED_BY = {"mlflow.source.name": "accelsweep"}

_STATUS = {Outcome.measured: "FINISHED", Outcome.unsupported: "FINISHED", Outcome.timed_out: "KILLED"}
_MAX_LABEL = 250
_MAX_POINTS = 100


def run_key(run: str) -> str:
    """Return the key of a repeat's MLflow run."""
    return f"run:{run}"


def setting_key(setting: str) -> str:
    """Return the key of a setting's MLflow run."""
    return f"setting:{setting}"


def run_name(axes: Mapping[str, Any], repeat: int | None = None) -> str:
    """Return the run name of a setting, `batch 256, bf16-mixed, 2 GPUs`, or of a repeat, with `#2` in front."""
    name = storable_text(label(axes), limit=_MAX_LABEL)
    return name if repeat is None else f"#{repeat} {name}"


def setting_tags(setting: PlannedSetting) -> dict[str, str]:
    """Return the tags that group a setting and its repeats: its readable name and its ID."""
    return to_tags({"setting": storable_text(label(setting.axes), limit=_MAX_LABEL), "setting_id": setting.name})


def finished_run(folder: SweepFolder, finished: FinishedRun, setting: PlannedSetting) -> MlflowRun:
    """Return the MLflow run for a record. Raises DamagedFile if the record was damaged after the snapshot.

    The name and params follow the plan's axes: the record may be from an earlier revision with fewer axes.
    """
    record = read_record(folder, finished.run)
    damage = steps_damage(record, folder.steps(record.run))
    files = [folder.record(record.run), folder.run(record.run) / LOG_FILE]
    files += [] if damage else [folder.steps(record.run)]
    return MlflowRun(
        key=run_key(record.run),
        name=run_name(setting.axes, record.repeat),
        source=finished.sha256,
        digest=run_digest(finished.sha256, setting.axes),
        status=_STATUS.get(record.outcome, "FAILED"),
        started=finished.started,
        ended=finished.ended,
        tags=_record_tags(record, finished, damage) | setting_tags(setting),
        params=to_params(_config_values(record, setting.axes)),
        metrics=to_metrics(_repeat_metrics(record)),
        curves=(
            *(() if damage else curves(folder.steps(record.run), finished.started)),
            *learning_curves(record.learning, finished.started, finished.ended),
            *system_metrics(folder.series(record.run), record.environment.get("before", {}).get("cores_logical")),
        ),
        artifacts=tuple(Artifact(path) for path in files if path.is_file()),  # a FIFO would block
        data=(
            (record.config.data_target or "data").rpartition(".")[2],
            storable_text(canonical_json(record.config.data)),
        ),
        parent=setting_key(record.setting),
    )


def running_run(running: RunningRun, setting: PlannedSetting) -> MlflowRun:
    """Return the MLflow run for a repeat that is being measured."""
    source = f"{RUNNING_SOURCE}@{running.since}"
    tags = {"kind": "run", "outcome": "running", "run": running.run, "block": running.block}
    return MlflowRun(
        key=run_key(running.run),
        name=run_name(setting.axes, Run.parse(running.run).repeat),
        source=source,
        digest=run_digest(source, setting.axes),
        status="RUNNING",
        started=epoch_ms(running.since),
        ended=None,
        tags=to_tags(tags) | setting_tags(setting),
        params=to_params(setting.axes),
        parent=setting_key(setting.name),
    )


_REPORT_SUFFIXES = frozenset({".html", ".svg", ".csv", ".png"})
"""What MLflow gets of a report: not the Markdown, because the page contains all of it and links to all the others."""


def report_key(snapshot: Snapshot) -> str:
    """Return the key of the MLflow run that contains the current revision's report."""
    return f"report:{snapshot.manifest.revision}"


def report_run(snapshot: Snapshot, digest: str, constraints: Path | None) -> MlflowRun:
    """Return the current revision's `report` run, containing the report, plan, record table and pinned versions."""
    folder, manifest, findings = snapshot.folder, snapshot.manifest, snapshot.findings
    files = [(folder.manifest, "plan"), (folder.findings, ""), (folder.records, "")]
    files += [(constraints, "plan")] if constraints else []
    files += [(path, str(path.parent.relative_to(folder.root))) for path in folder.feature_files(published=True)]
    started = min((run.started for run in snapshot.finished.values()), default=snapshot.planned)
    recommendation = findings.recommendation.sentence if findings else ""
    return MlflowRun(
        key=report_key(snapshot),
        name=f"report (revision {manifest.revision})",
        source=report_key(snapshot),
        digest=digest,
        status="FINISHED",
        started=started,
        ended=max((run.ended for run in snapshot.finished.values()), default=started),
        tags=to_tags(
            {
                "kind": "report",
                "revision": manifest.revision,
                "command": findings.command if findings else None,
                "recommendation": recommendation,
                NOTE_TAG: f"{recommendation}\n\nThe report is the artifact `report/{PAGE}`. The plan and all records "
                "are artifacts, too.",
                **CREATED_BY,
            }
        ),
        metrics=to_metrics({"runs_planned": len(manifest.wanted_runs()), "runs_finished": len(snapshot.finished)}),
        artifacts=(
            *([Artifact(folder.report, "report", _REPORT_SUFFIXES)] if folder.report.exists() else []),
            *(Artifact(path, target) for path, target in files if path.exists()),
        ),
    )


def memory_in_gib(metric: str, size: float) -> dict[str, float]:
    """Return a memory metric, whose `size` is in bytes, in GiB: `peak_memory_gib`, or `memory_gib` if it is no peak.

    Four digits are kept, because a saved view cannot round.
    """
    return {memory_column(metric): float(f"{size / 2**30:.4g}")}


def memory_column(metric: str) -> str:
    """Return the name under which a memory metric is published in GiB."""
    return "peak_memory_gib" if "peak" in metric else "memory_gib"


def doubt_codes(doubts: Iterable[Doubt]) -> str:
    """Return the distinct doubt codes, for a tag."""
    return ", ".join(dict.fromkeys(doubt.code for doubt in doubts))


def note_sections(doubts: Iterable[Doubt], missing: Mapping[str, str | None]) -> list[str]:
    """Return the doubts, and why metrics are `missing`, as Markdown lines for a run's description."""
    sections = {
        "Doubts:": [f"* **{doubt.code}**: {doubt.message.rstrip('.')}; {doubt.remedy}" for doubt in doubts],
        "Not measured:": [f"* `{name}`: {reason}" for name, reason in missing.items()],
    }
    return [line for title, lines in sections.items() if lines for line in ("", title, "", *dict.fromkeys(lines))]


def curves(steps: Path, started: int, max_points: int = _MAX_POINTS) -> tuple[MetricPoint, ...]:
    """Return `curve/samples_per_second` and `curve/train_loss` over the steps after warm-up from a run's steps.parquet.

    Consecutive steps are merged into one point if there are more than `max_points`. A point's time is `started`
    (milliseconds since 1970) plus the duration of the steps so far, so start-up time is excluded. Returns an empty
    result if the file is missing, damaged or contains no such steps.
    """
    try:
        table = parquet.read_table(steps, columns=["step", "phase", "step_seconds", "samples", "train_loss"])
    except (OSError, pyarrow.ArrowException):
        return ()
    step = table["step"].to_numpy()
    measured = np.unique(step[table["phase"].to_numpy() == "window"])
    if not len(measured):
        return ()
    seconds, samples, losses = _per_step(table, step)
    elapsed_ms = started + np.cumsum(seconds) * 1000
    points: list[MetricPoint] = []
    for bucket in np.array_split(measured, min(max_points, len(measured))):
        last, time = int(bucket[-1]), int(elapsed_ms[bucket[-1]])
        if (duration := float(seconds[bucket].sum())) > 0:
            points.append(MetricPoint("curve/samples_per_second", float(samples[bucket].sum()) / duration, last, time))
        if len(finite := losses[bucket][np.isfinite(losses[bucket])]):
            points.append(MetricPoint("curve/train_loss", float(finite.mean()), last, time))
    return tuple(points)


def learning_curves(learning: LearningCurve | None, started: int, ended: int) -> tuple[MetricPoint, ...]:
    """Return `learning/train_loss` and `learning/quality` over training samples.

    A point's time is `started` (milliseconds since 1970) plus its seconds of training, or `ended` if it was not timed.
    """
    if learning is None:
        return ()
    points = [("learning/train_loss", point) for point in learning.losses]
    points += [("learning/quality", point) for point in learning.validations]

    def time(point: LearningPoint) -> int:
        return ended if point.seconds is None else started + round(1000 * point.seconds)

    return tuple(MetricPoint(name, point.value, point.samples, time(point)) for name, point in points)


_SYSTEM_METRICS: Mapping[str, tuple[str, float]] = {
    r"gpu(\d+)_utilisation": (r"gpu_\1_utilization_percentage", 100.0),
    r"gpu(\d+)_memory_bytes": (r"gpu_\1_memory_usage_megabytes", 1e-6),
    r"gpu(\d+)_power_watts": (r"gpu_\1_power_usage_watts", 1.0),
    r"host_memory_bytes": ("system_memory_usage_megabytes", 1e-6),
}
"""Columns of series.parquet -> MLflow's own names, and factors (mlflow/system_metrics/metrics)."""


def system_metrics(series: Path, cores: int | None, max_points: int = 2 * _MAX_POINTS) -> tuple[MetricPoint, ...]:
    """Return the sampled values as MLflow's system metrics, at most `max_points` each, with the times of the samples.

    `cores` is the number of the machine's logical cores; without it, their utilisation in percent is left out. Returns
    an empty result if the file is missing or damaged.
    """
    try:
        table = parquet.read_table(series)
        seconds = table["unix_seconds"].to_numpy()
    except (OSError, KeyError, pyarrow.ArrowException):
        return ()
    points: list[MetricPoint] = []
    for column in table.column_names:
        if column in ("seconds", "unix_seconds", "phase"):
            continue
        name, factor = _system_metric(column)
        values = table[column].to_numpy(zero_copy_only=False).astype(float) * factor
        if column == "host_cpu_cores" and cores:
            name, values = "cpu_utilization_percentage", values * (100.0 / cores)
        for number, bucket in enumerate(np.array_split(np.arange(len(values)), min(max_points, len(values)))):
            known = values[bucket][np.isfinite(values[bucket])]
            if len(known):
                when = int(seconds[bucket[-1]] * 1000)
                points.append(MetricPoint(f"system/{name}", float(known.mean()), number, when))
    return tuple(points)


def _system_metric(column: str) -> tuple[str, float]:
    for pattern, (name, factor) in _SYSTEM_METRICS.items():
        if match := re.fullmatch(pattern, column):
            return match.expand(name), factor
    return column, 1.0


def _per_step(table: parquet.Table, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, per step, the slowest rank's time in seconds, the samples of all ranks and their mean finite loss."""
    count = int(step.max()) + 1
    seconds, samples = np.zeros(count), np.zeros(count)
    np.maximum.at(seconds, step, table["step_seconds"].to_numpy())
    np.add.at(samples, step, table["samples"].to_numpy())
    loss = table["train_loss"].to_numpy(zero_copy_only=False).astype(float)
    finite = np.isfinite(loss)
    sums, counts = np.zeros(count), np.zeros(count)
    np.add.at(sums, step[finite], loss[finite])
    np.add.at(counts, step[finite], 1)
    return seconds, samples, np.divide(sums, counts, out=np.full(count, np.nan), where=counts > 0)


def _repeat_metrics(record: Record) -> dict[str, float | None]:
    """Return the record's metrics. MLflow shows them in this order, so those of the headline come first."""
    values = {name: metric.value for name, metric in record.metrics.items()}
    memory = {name: size for name in MEMORY_METRICS if (size := values.get(name)) is not None}
    headline = [compared_rate(None, [record.config.task_name]), "quality"]
    first = {name: values[name] for name in headline if name in values}
    for name, size in list(memory.items())[:1]:
        first |= memory_in_gib(name, size)
    return first | values | {"wall_seconds": record.wall_seconds}


def _config_values(record: Record, axes: dict[str, Any]) -> dict[str, Any]:
    """Return the plain top-level config values, the swept keys and the effective values."""
    plain = {name: value for name, value in record.config.raw.items() if isinstance(value, str | int | float | bool)}
    effective = to_jsonable_python(record.effective) if record.effective else {}
    known = {f"effective.{name}": value for name, value in effective.items() if value is not None}
    return plain | axes | {"seed": record.seed} | known


def _record_tags(record: Record, finished: FinishedRun, damage: DamagedFile | None) -> dict[str, str]:
    quality = record.metrics.get("quality")
    devices = record.effective.device_names if record.effective else ()
    fingerprint = {name: facts for name, facts in asdict(record.fingerprint).items() if name != "builds"}
    if not fingerprint["links"]:
        del fingerprint["links"]
    return to_tags(
        {
            "kind": "run",
            "outcome": record.outcome.value,
            "reason": record.reason,
            "run": record.run,
            "repeat": record.repeat,
            "block": record.block,
            "position": record.position,
            "attempt": record.attempt,
            "hardware": ", ".join(f"{name} x{devices.count(name)}" for name in dict.fromkeys(devices)),
            "host": record.surroundings.before.host,
            "fingerprint": sha256_text(canonical_json(fingerprint))[:12],
            "record_sha256": finished.sha256,
            "doubts": doubt_codes(record.doubts),
            "quality_metric": quality.unit if quality else None,
            **finished.provenance,
            NOTE_TAG: _run_note(record, damage),
            **CREATED_BY,
        }
    )


def _run_note(record: Record, damage: DamagedFile | None) -> str:
    lines = [f"**{record.outcome}**" + (f": {record.reason}" if record.reason else "")]
    lines += ["", f"The raw steps were left out: {damage.path.name}: {damage.reason}."] if damage else []
    missing = {name: metric.reason for name, metric in record.metrics.items() if metric.value is None}
    return "\n".join(lines + note_sections(record.doubts, missing))
