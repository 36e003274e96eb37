"""Finished and running runs, cells and reports as MLflow runs. No number is computed here, only named.

Tags with a plain name are for people (`outcome`, `hardware`, `verdict`). Tags that begin with `accelsweep.` are the
publisher's own. Metrics keep the names that they have in records, which carry their units.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet as parquet

from accelsweep.config.schema import CellConfig
from accelsweep.config.setting import in_short, label
from accelsweep.errors import DamagedFile
from accelsweep.json_documents import canonical_json, sha256_text
from accelsweep.records.layout import LOG_FILE, PAGE, SweepFolder
from accelsweep.records.plan import PlannedCell, Run
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Doubt, Fingerprint, Outcome, Record, steps_damage
from accelsweep.state.profiles import profile_files
from accelsweep.tracking.mlflow_run import (
    NOTE,
    Artifact,
    DataSet,
    HistoryPoint,
    Wanted,
    metrics,
    milliseconds,
    params,
    plain,
    tags,
)
from accelsweep.tracking.sweep_snapshot import Finished, RunningRun, Snapshot, run_digest

# A run's steps after warm-up as curves with a bounded number of points, for MLflow's charts.

MAX_POINTS = 100

_COLUMNS = ["step", "phase", "step_seconds", "samples", "train_loss"]


def curves(steps: Path, started: int, max_points: int = MAX_POINTS) -> tuple[HistoryPoint, ...]:
    """Return the curves `curve/samples_per_second` (1/s) and `curve/train_loss` of a run's steps.parquet.

    A point's time is `started` (milliseconds since 1970) plus the time of the steps before it: cold costs are left out.
    Returns nothing where the file is absent, cannot be read or holds no step of the window.
    """
    try:
        table = parquet.read_table(steps, columns=_COLUMNS)
    except (OSError, pyarrow.ArrowException):
        return ()
    step = table["step"].to_numpy()
    if not len(step):
        return ()
    seconds, samples, losses = _per_step(table, step)
    numbers = np.flatnonzero(np.isin(np.arange(len(seconds)), np.unique(step[table["phase"].to_numpy() == "window"])))
    if not len(numbers):
        return ()
    elapsed = started + np.cumsum(seconds) * 1000
    points: list[HistoryPoint] = []
    for bucket in np.array_split(numbers, min(max_points, len(numbers))):
        last, when = int(bucket[-1]), int(elapsed[bucket[-1]])
        if (duration := float(seconds[bucket].sum())) > 0:
            points.append(HistoryPoint("curve/samples_per_second", float(samples[bucket].sum()) / duration, last, when))
        if len(read := losses[bucket][np.isfinite(losses[bucket])]):
            points.append(HistoryPoint("curve/train_loss", float(read.mean()), last, when))
    return tuple(points)


def _per_step(table: parquet.Table, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, per step, the slowest rank's seconds, the samples of all ranks and the mean of their finite losses."""
    count = int(step.max()) + 1
    seconds, samples = np.zeros(count), np.zeros(count)
    np.maximum.at(seconds, step, table["step_seconds"].to_numpy())
    np.add.at(samples, step, table["samples"].to_numpy())
    loss = table["train_loss"].to_numpy(zero_copy_only=False).astype(float)
    finite = np.isfinite(loss)
    sums, reads = np.zeros(count), np.zeros(count)
    np.add.at(sums, step[finite], loss[finite])
    np.add.at(reads, step[finite], 1)
    return seconds, samples, np.divide(sums, reads, out=np.full(count, np.nan), where=reads > 0)


_STATUS = {Outcome.measured: "FINISHED", Outcome.unsupported: "FINISHED", Outcome.timed_out: "KILLED"}

RUNNING_SOURCE = "running"

_MOST_SHOWN = 24

_LONGEST_TAG = 250


def run_key(run: str) -> str:
    """Return the key that identifies a repeat's MLflow run in its experiment."""
    return f"run:{run}"


def cell_key(cell: str) -> str:
    """Return the key that identifies a cell's MLflow run in its experiment."""
    return f"cell:{cell}"


def run_name(axes: Mapping[str, Any], repeat: int | None = None) -> str:
    """Return the name of a setting or of one of its repeats, numbered as its folder: `cuda x2, bf16, b256 #2`.

    The UI shows the first 24 characters or so. The tag `cell` has the whole name.
    """
    ending = "" if repeat is None else f" #{repeat}"
    name, most = plain(in_short(axes)), _MOST_SHOWN - len(ending)
    return (name if len(name) <= most else name[: most - 1].rstrip(" ,") + "\N{HORIZONTAL ELLIPSIS}") + ending


def finished_run(folder: SweepFolder, finished: Finished, cell: PlannedCell) -> Wanted:
    """Return the child run for a record. Raises DamagedFile if the record has become unreadable since it was seen.

    Name and params follow the plan's axes. Those in the record may be of an earlier revision, which had fewer.
    """
    record = read_record(folder, finished.run)
    damage = steps_damage(record, folder.steps(record.run))
    started = milliseconds(record.started_at)
    return Wanted(
        key=run_key(record.run),
        name=run_name(cell.axes, record.repeat),
        source=finished.sha256,
        digest=run_digest(finished.sha256, cell.axes),
        status=_STATUS.get(record.outcome, "FAILED"),
        started=started,
        ended=milliseconds(record.finished_at),
        tags=_run_tags(record, finished, damage) | cell_tags(cell),
        params=params(_settings(record, cell.axes)),
        metrics=metrics(
            {name: metric.value for name, metric in record.metrics.items()} | {"wall_seconds": record.wall_seconds}
        ),
        curves=() if damage else curves(folder.steps(record.run), started),
        artifacts=_run_artifacts(folder, record, damage),
        data=_data_set(record.config),
        parent=cell_key(record.cell),
    )


def running_run(running: RunningRun, cell: PlannedCell) -> Wanted:
    """Return the child run for a repeat that is being measured."""
    source = f"{RUNNING_SOURCE}@{running.since}"
    return Wanted(
        key=run_key(running.run),
        name=run_name(cell.axes, Run.parse(running.run).repeat),
        source=source,
        digest=run_digest(source, cell.axes),
        status="RUNNING",
        started=milliseconds(running.since),
        ended=None,
        tags=tags({"kind": "run", "outcome": "running", "run": running.run, "block": running.block}) | cell_tags(cell),
        params=params(cell.axes),
        parent=cell_key(cell.name),
    )


def report_run(snapshot: Snapshot, digest: str, constraints: Path | None) -> Wanted:
    """Return the `report` run of the current revision: the report folder, the plan, the table of records, the pins."""
    folder, manifest, findings = snapshot.folder, snapshot.manifest, snapshot.findings
    files = [(folder.report, "report"), (folder.manifest, "plan"), (folder.findings, ""), (folder.records, "")]
    files += [(constraints, "plan")] if constraints else []
    files += [(path, f"profiles/{path.parent.name}") for path in profile_files(folder)]
    started = min((milliseconds(item.started_at) for item in snapshot.finished.values()), default=snapshot.planned)
    advice = findings.recommendation.sentence if findings else ""
    return Wanted(
        key=f"report:{manifest.revision}",
        name=f"report (revision {manifest.revision})",
        source=f"report:{manifest.revision}",
        digest=digest,
        status="FINISHED",
        started=started,
        ended=max((milliseconds(item.finished_at) for item in snapshot.finished.values()), default=started),
        tags=tags(
            {
                "kind": "report",
                "mlflow.source.name": "accelsweep",
                "revision": manifest.revision,
                "command": findings.command if findings else None,
                "recommendation": advice,
                NOTE: f"{advice}\n\nOpen the artifact `report/{PAGE}`; the plan and all records lie beside it.",
            }
        ),
        metrics=metrics({"runs_planned": len(manifest.wanted_runs()), "runs_finished": len(snapshot.finished)}),
        artifacts=tuple(Artifact(path, target) for path, target in files if path.exists()),
    )


def _devices_used(record: Record) -> str | None:
    """Return the devices that a run used, such as `NVIDIA H100 x2`, or None where it did not come so far.

    A setting's tag is the name of its kind of hardware, as the report has it.
    """
    if record.effective is None:
        return None
    names = record.effective.device_names
    return ", ".join(f"{name} x{names.count(name)}" for name in dict.fromkeys(names))


def doubt_codes(doubts: tuple[Doubt, ...]) -> str:
    """Return the codes of some doubts, each once, as a tag's text."""
    return ", ".join(dict.fromkeys(doubt.code for doubt in doubts))


def doubt_lines(doubts: tuple[Doubt, ...]) -> list[str]:
    """Return some doubts as lines of Markdown."""
    return [f"* **{doubt.code}**: {doubt.message.rstrip('.')}; {doubt.remedy}" for doubt in doubts]


def _settings(record: Record, axes: dict[str, Any]) -> dict[str, Any]:
    """Return the swept keys, the plain top-level settings of the config and the settings really in force."""
    fixed = {name: value for name, value in record.config.raw.items() if isinstance(value, str | int | float | bool)}
    effective = record.effective.model_dump(mode="json") if record.effective else {}
    in_force = {f"effective.{name}": value for name, value in effective.items() if value is not None}
    return fixed | axes | {"seed": record.seed} | in_force


def cell_tags(cell: PlannedCell) -> dict[str, str]:
    """Return the tags by which a cell and its repeats are grouped: its readable name, and its own."""
    return tags({"cell": plain(label(cell.axes), limit=_LONGEST_TAG), "cell_id": cell.name})


def _run_tags(record: Record, finished: Finished, damage: DamagedFile | None) -> dict[str, str]:
    quality = record.metrics.get("quality")
    return tags(
        {
            "kind": "run",
            "outcome": record.outcome.value,
            "reason": record.reason,
            "run": record.run,
            "repeat": record.repeat,
            "block": record.block,
            "position": record.position,
            "attempt": record.attempt,
            "hardware": _devices_used(record),
            "host": record.surroundings.before.host,
            "fingerprint": _fingerprint(record.fingerprint),
            "record_sha256": finished.sha256,
            "doubts": doubt_codes(record.doubts),
            "quality_metric": quality.unit if quality else None,
            "mlflow.source.name": "accelsweep",
            **finished.origin,
            NOTE: _run_note(record, damage),
        }
    )


def _fingerprint(fingerprint: Fingerprint) -> str:
    """Return 12 digits that are equal for two runs whose hardware, software and sources are equal."""
    return sha256_text(canonical_json(fingerprint.model_dump(mode="json", exclude={"builds"})))[:12]


def _run_note(record: Record, damage: DamagedFile | None) -> str:
    lines = [f"**{record.outcome}**" + (f": {record.reason}" if record.reason else "")]
    lines += ["", f"The raw steps were left out: {damage.path.name}: {damage.why}."] if damage else []
    if record.doubts:
        lines += ["", "Doubts:", "", *doubt_lines(record.doubts)]
    missing = [f"* `{name}`: {metric.reason}" for name, metric in record.metrics.items() if metric.value is None]
    if missing:
        lines += ["", "Not measured:", "", *missing]
    return "\n".join(lines)


def _run_artifacts(folder: SweepFolder, record: Record, damage: DamagedFile | None) -> tuple[Artifact, ...]:
    config = Artifact(plain(_indented(record.config.raw), limit=10_000_000), "config.json")
    files = [folder.record(record.run), folder.run(record.run) / LOG_FILE]
    files += [] if damage else [folder.steps(record.run)]
    return (config, *(Artifact(path) for path in files if path.is_file()))  # a link to a device has no end


def _indented(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _data_set(config: CellConfig) -> DataSet:
    source = plain(canonical_json(config.data))
    return DataSet((config.data_target or "data").rpartition(".")[2], sha256_text(source)[:12], source)
