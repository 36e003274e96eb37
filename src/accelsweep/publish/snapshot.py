"""The content of a sweep's folder at one moment: its plan, its runs' records, and the run that is being measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelsweep.base.documents import canonical_json, sha256_file, sha256_text
from accelsweep.base.errors import DamagedFile
from accelsweep.core.findings.findings import Findings
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.planned.plans import Hold, Manifest, Run
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.publish.origin import origin
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import living_hold
from accelsweep.state.profiles import profile_files
from accelsweep.state.progress import steps_done
from accelsweep.state.records import read_record

FileStamp = tuple[int, int]
"""A file's modification time in nanoseconds and its size: these change when a file is written anew."""


_FORM = 4
"""Raised whenever a run gets another name, place, status, tag, param or metric: earlier copies are then completed."""


@dataclass(frozen=True)
class Finished:
    """A run that left a record. `stamp` is its file's; times are ISO 8601; `origin` are its tags of that name."""

    run: str
    cell: str
    sha256: str
    outcome: Outcome
    started_at: str
    finished_at: str
    stamp: FileStamp
    origin: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class RunningRun:
    """A run that is being measured now; `step` is the number of steps that it has done, where known."""

    run: str
    cell: str
    block: str
    since: str
    step: int | None


@dataclass(frozen=True)
class Snapshot:
    """A sweep's folder at one moment.

    `planned` is the time of the plan, in milliseconds since 1970. `stamps` are those of manifest and findings. `live`
    says whether the sweep still has a living head or supervisor. `damaged` names files that could not be used, and why.
    """

    folder: SweepFolder
    manifest: Manifest
    planned: int
    findings: Findings | None
    stamps: tuple[FileStamp | None, FileStamp | None]
    finished: Mapping[str, Finished]
    running: Mapping[str, RunningRun]
    live: bool
    damaged: tuple[str, ...] = ()
    runs_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def records(self) -> list[str]:
        """The SHA-256 sums of the records."""
        return [item.sha256 for item in self.finished.values()]

    def differs_in_steps_only(self, previous: Snapshot | None) -> bool:
        """Return whether nothing but the step counts of the running runs may have changed since `previous`."""
        return (
            previous is not None
            and (self.stamps, self.live) == (previous.stamps, previous.live)
            and self.finished == previous.finished
            and self.running.keys() == previous.running.keys()
            and all(item.since == previous.running[run].since for run, item in self.running.items())
        )

    def findings_of(self, cell: str) -> tuple[CellFinding, ...]:
        """Return the last analysis' findings of a cell, one for each kind of hardware that it was run on."""
        return tuple(item for item in self.findings.cells if item.cell == cell) if self.findings else ()


def take(folder: SweepFolder, previous: Snapshot | None = None, *, live: bool = False) -> Snapshot:
    """Return the present content of the folder; files that have not changed since `previous` are not read again.

    `live` says that the sweep is known to go on, also while no block is held. Raises DamagedFile if the manifest is
    damaged; any other damaged file is named in the snapshot and left out.
    """
    damaged: list[str] = []
    stamps = _stamp(folder.manifest), _stamp(folder.findings)
    unchanged = [previous is not None and previous.stamps[k] == stamps[k] for k in (0, 1)]
    manifest = previous.manifest if previous and unchanged[0] else Manifest.read(folder.manifest)
    findings = previous.findings if previous and unchanged[1] else _findings(folder, damaged)
    wanted = set(manifest.wanted_runs())
    finished: dict[str, Finished] = {}
    known = previous.finished if previous else {}
    for run in sorted(wanted):
        try:
            if (item := _finished(folder, run, known.get(run))) is not None:
                finished[run] = item
        except DamagedFile as error:
            damaged.append(str(error))
    holds = [hold for block in manifest.blocks if (hold := living_hold(folder.hold(block.name)))]
    running = {item.run: item for item in _running(folder, holds) if item.run in wanted - set(finished)}
    return Snapshot(
        folder=folder,
        manifest=manifest,
        planned=stamps[0][0] // 1_000_000 if stamps[0] else 0,
        findings=findings,
        stamps=stamps,
        finished=finished,
        running=running,
        live=live or bool(holds),
        damaged=tuple(damaged),
        runs_of=_runs_of(manifest),
    )


def run_digest(source: str, axes: Mapping[str, Any]) -> str:
    """Return the digest of a repeat's MLflow run: of its form, its sources, and its cell's axes, which name it.

    A later revision of the plan may have one more axis. The record stays as it is, and the run gets the name of its
    cell.
    """
    return sha256_text(canonical_json([_FORM, source, axes]))


def report_digest(folder: SweepFolder) -> str:
    """Return the digest of everything that the `report` run carries; equal digests mean equal artifacts."""
    files = [path for path in sorted(folder.report.rglob("*")) if path.is_file()] if folder.report.exists() else []
    files += [path for path in (folder.manifest, folder.findings, folder.records) if path.exists()]
    files += profile_files(folder)
    return sha256_text(canonical_json([[str(path.relative_to(folder.home)), sha256_file(path)] for path in files]))


def _stamp(path: Path) -> FileStamp | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size


def _findings(folder: SweepFolder, damaged: list[str]) -> Findings | None:
    try:
        return Findings.read(folder.findings)
    except FileNotFoundError:
        return None
    except DamagedFile as error:
        damaged.append(str(error))
        return None


def _finished(folder: SweepFolder, run: str, known: Finished | None) -> Finished | None:
    path = folder.record(run)
    stamp = _stamp(path)
    if stamp is None:
        return None
    if known is not None and known.stamp == stamp:
        return known
    record = read_record(folder, run)
    return Finished(
        run=run,
        cell=record.cell,
        sha256=sha256_file(path),
        outcome=record.outcome,
        started_at=record.started_at,
        finished_at=record.finished_at,
        stamp=stamp,
        origin=origin(record),
        reason=record.reason,
    )


def _running(folder: SweepFolder, holds: list[Hold]) -> list[RunningRun]:
    return [
        RunningRun(
            run=hold.run,
            cell=Run.parse(hold.run).cell,
            block=hold.block,
            since=hold.run_since,
            step=steps_done(folder, hold.run),
        )
        for hold in holds
        if hold.run and hold.run_since
    ]


def _runs_of(manifest: Manifest) -> dict[str, tuple[str, ...]]:
    runs: dict[str, list[str]] = {}
    for run in manifest.wanted_runs():
        runs.setdefault(Run.parse(run).cell, []).append(run)
    return {cell: tuple(names) for cell, names in runs.items()}
