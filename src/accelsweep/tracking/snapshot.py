"""The contents of a sweep's folder at a point in time: its plan, findings, records and runs in progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from accelsweep.errors import DamagedFile
from accelsweep.files import sha256_file
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.records.file_lock import live_lock
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import read_record
from accelsweep.records.run_record import Record
from accelsweep.records.sweep_progress import steps_done
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.tracking.mlflow_run import epoch_ms

FileStamp = tuple[int, int]
"""A file's modification time in nanoseconds and its size."""

_LAYOUT_VERSION = 3
"""Increment when the name, parent, status, tags, params or metrics of runs change, so that existing copies are
updated."""


@dataclass(frozen=True)
class FinishedRun:
    """A run with a record. `stamp` is the record file's stamp; times are in milliseconds since 1970.

    `config` is the run's config with the values in effect, where they are known, under `effective`.
    """

    run: str
    setting: str
    sha256: str
    outcome: Outcome
    reason: str | None
    started: int
    ended: int
    stamp: FileStamp
    provenance: Mapping[str, str]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class RunningRun:
    """A run in progress. `since` is its start time (ISO 8601), and `step` is the number of finished steps, if known."""

    run: str
    setting: str
    block: str
    since: str
    step: int | None


@dataclass(frozen=True)
class Snapshot:
    """A sweep's folder at a point in time.

    `planned` is the planning time in milliseconds since 1970. `stamps` contains the stamps of the manifest and
    findings. `live` indicates whether the sweep is still being measured. `damaged` describes the unusable files.
    """

    folder: SweepFolder
    manifest: Manifest
    planned: int
    findings: Findings | None
    stamps: tuple[FileStamp | None, FileStamp | None]
    runs_by_setting: Mapping[str, tuple[str, ...]]
    finished: Mapping[str, FinishedRun]
    running: Mapping[str, RunningRun]
    live: bool
    damaged: tuple[str, ...]

    @cached_property
    def baselines(self) -> frozenset[str]:
        """The settings that others are compared with."""
        return self.manifest.baselines

    @property
    def record_digests(self) -> list[str]:
        """The SHA-256 digests of the records."""
        return [run.sha256 for run in self.finished.values()]

    def without_steps(self) -> Snapshot:
        """Return the snapshot without the step counts of runs in progress."""
        return replace(self, running={name: replace(run, step=None) for name, run in self.running.items()})

    def findings_of(self, setting: str) -> tuple[SettingFinding, ...]:
        """Return a setting's findings, one for each kind of hardware that it ran on."""
        return (
            tuple(finding for finding in self.findings.settings if finding.setting == setting) if self.findings else ()
        )


def take_snapshot(folder: SweepFolder, previous: Snapshot | None = None, *, live: bool = False) -> Snapshot:
    """Return the folder's current contents. Files unchanged since `previous` are not reread.

    Pass `live` if the sweep is known to continue even while no block is being measured. Damaged records and findings
    are left out and described in `damaged`. Raises DamagedFile if the manifest is damaged.
    """
    damaged: list[str] = []
    stamps = _stamp(folder.manifest), _stamp(folder.findings)
    manifest = previous.manifest if previous and previous.stamps[0] == stamps[0] else Manifest.read(folder.manifest)
    findings = previous.findings if previous and previous.stamps[1] == stamps[1] else _read_findings(folder, damaged)
    planned_runs = manifest.wanted_runs()
    runs_by_setting: dict[str, list[str]] = {}
    for run in planned_runs:
        runs_by_setting.setdefault(Run.parse(run).setting, []).append(run)
    finished: dict[str, FinishedRun] = {}
    for run in sorted(planned_runs):
        try:
            if (item := _finished_run(folder, run, previous.finished.get(run) if previous else None)) is not None:
                finished[run] = item
        except DamagedFile as error:
            damaged.append(str(error))
    holds = [hold for block in manifest.blocks if (hold := live_lock(folder.lock(block.name)))]
    unfinished = set(planned_runs) - finished.keys()
    return Snapshot(
        folder=folder,
        manifest=manifest,
        planned=stamps[0][0] // 1_000_000 if stamps[0] else 0,
        findings=findings,
        stamps=stamps,
        runs_by_setting={setting: tuple(runs) for setting, runs in runs_by_setting.items()},
        finished=finished,
        running={
            hold.run: RunningRun(
                hold.run, Run.parse(hold.run).setting, hold.block, hold.run_since, steps_done(folder, hold.run)
            )
            for hold in holds
            if hold.run and hold.run_since and hold.run in unfinished
        },
        live=live or bool(holds),
        damaged=tuple(damaged),
    )


def _stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def _read_findings(folder: SweepFolder, damaged: list[str]) -> Findings | None:
    try:
        return Findings.read(folder.findings)
    except FileNotFoundError:
        return None
    except DamagedFile as error:
        damaged.append(str(error))
        return None


def _finished_run(folder: SweepFolder, run: str, known: FinishedRun | None) -> FinishedRun | None:
    path = folder.record(run)
    stamp = _stamp(path)
    if stamp is None:
        return None
    if known is not None and known.stamp == stamp:
        return known
    record = read_record(folder, run)
    return FinishedRun(
        run=run,
        setting=record.setting,
        sha256=sha256_file(path),
        outcome=record.outcome,
        reason=record.reason,
        started=epoch_ms(record.started_at),
        ended=epoch_ms(record.finished_at),
        stamp=stamp,
        provenance=provenance_tags(record),
        config=dict(record.config.raw)
        | ({"effective": to_jsonable_python(record.effective)} if record.effective else {}),
    )


def provenance_tags(record: Record) -> dict[str, str]:
    """Return the record's model, data, library versions and commit as tags; unknown values are left out."""
    dirty = record.checkout.dirty
    tags: dict[str, Any] = {
        "model": record.config.model_target,
        "data": record.config.data_target,
        **record.fingerprint.software,
        "mlflow.source.git.commit": record.checkout.commit,
        "mlflow.source.git.dirty": None if dirty is None else str(dirty).lower(),
    }
    return {name: str(value) for name, value in tags.items() if value}


def merge_tags(tags_of_runs: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge the tags of several runs, joining distinct values with commas in run order."""
    merged: dict[str, dict[str, None]] = {}
    for tags in tags_of_runs:
        for name, value in tags.items():
            merged.setdefault(name, {})[value] = None
    return {name: ", ".join(values) for name, values in merged.items()}


def run_digest(source: str, axes: Mapping[str, Any]) -> str:
    """Return the digest of a repeat's MLflow run.

    It includes the plan's axes: if a later revision sweeps an additional key, the run's name and params change but its
    record does not.
    """
    return sha256_text(canonical_json([_LAYOUT_VERSION, source, axes]))


def report_digest(folder: SweepFolder) -> str:
    """Return the digest of all files in the `report` run."""
    files = [path for path in sorted(folder.report.rglob("*")) if path.is_file()] if folder.report.exists() else []
    files += [path for path in (folder.manifest, folder.findings, folder.records) if path.exists()]
    files += folder.feature_files(published=True)
    return sha256_text(canonical_json([[str(path.relative_to(folder.home)), sha256_file(path)] for path in files]))
