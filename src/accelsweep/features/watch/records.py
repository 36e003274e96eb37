"""Reads from a sweep's records the rates with which a training is compared."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from accelsweep.cli.runs import resolve_setting
from accelsweep.config.setting import label
from accelsweep.errors import InputError
from accelsweep.features.watch.measured_rate import Expectation, MeasuredRate
from accelsweep.records.layout import SweepFolder, existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_environment import RunEnvironment

EVERY_MINUTES = 5.0

MIN_MINUTES = 0.05
"""The shortest interval between two comparisons."""


def expectation_of(sweep: str | Path, setting: str | None = None, every_minutes: float = EVERY_MINUTES) -> Expectation:
    """Return what the sweep measured, or only what it measured of `setting` (a name, label or values).

    `sweep` is a sweep's name in the working directory, or the path `sweeps/NAME`. Raises InputError if there is no such
    sweep or setting, or if nothing was measured.
    """
    if not every_minutes >= MIN_MINUTES:
        raise InputError(f"{every_minutes:g} minutes between two comparisons are too few: use at least {MIN_MINUTES:g}")
    path = Path(sweep)
    folder = existing_sweep(*((Path.cwd(), path.name) if len(path.parts) == 1 else _home_and_name(path)))
    wanted = None if setting is None else resolve_setting(folder, setting)
    rates = [rate for rate in measured_rates(folder) if wanted in (None, rate.setting)]
    if not rates:
        what = "no training measured yet" if wanted is None else f"no measurement of {setting!r} yet"
        raise InputError(f"{folder.name} has {what}: measure it with `accelsweep run` first")
    return Expectation(folder.name, tuple(rates), wanted is not None, every_minutes * 60)


def _home_and_name(path: Path) -> tuple[Path, str]:
    folder = SweepFolder.of(path)
    return folder.home, folder.name


def measured_rates(folder: SweepFolder) -> list[MeasuredRate]:
    """Return the rate of each setting that was trained, on each machine. Disturbed runs only count if all are."""
    manifest = Manifest.read(folder.manifest)
    labels = {setting.name: label(setting.axes) for setting in manifest.settings}
    found = defaultdict[tuple[str, str | None], list[Record]](list)
    for record in readable_records(folder, (run for block in manifest.blocks for run in block.runs)):
        if record.outcome is Outcome.measured and record.config.task == "train_throughput" and _rate(record):
            found[record.setting, RunEnvironment(record.environment).before.machine].append(record)
    return [_measured(records, labels[setting]) for (setting, _), records in found.items()]


def _measured(records: Sequence[Record], label: str) -> MeasuredRate:
    quiet = [record for record in records if not any(doubt.disturbing for doubt in record.doubts)] or records
    last = max(quiet, key=lambda record: record.finished_at)
    before, effective = RunEnvironment(last.environment).before, last.effective
    assert effective is not None, "a measured run has its effective setting"
    return MeasuredRate(
        setting=last.setting,
        label=label,
        samples_per_second=statistics.median(map(_rate, quiet)),
        runs=len(quiet),
        measured_on=last.finished_at[:10],
        machine=before.machine,
        host=before.host,
        hardware=dict(last.fingerprint.hardware),
        software=dict(last.fingerprint.software),
        batch_size=effective.batch_size,
        global_batch_size=effective.global_batch_size,
        world_size=effective.world_size,
        accelerator=effective.accelerator,
        precision=effective.precision,
        threads_per_rank=effective.threads_per_rank,
    )


def _rate(record: Record) -> float:
    metric = record.metrics.get("samples_per_second")
    return (metric.value if metric is not None else None) or 0.0
