"""The profiles of a sweep beside its findings: each with the measured step of its setting, and what two differ in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from accelsweep.analysis.intervals import significant
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.setting import label
from accelsweep.core.recorded.profiles import (
    ModuleTime,
    OperatorTime,
    PartDifference,
    ProfileFinding,
    SettingProfile,
)
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Fingerprint
from accelsweep.state.profiles import kept_profiles

PLACES_SHOWN = 12
"""So many operators and modules of a profile are shown; its document has all."""

LEAST_SHOWN_SHARE = 0.005
"""A difference below this share of the longer step is left out: the next profile would have another one."""


def with_profiles(found: Findings, folder: SweepFolder, runs: Iterable[RunRow], manifest: Manifest) -> Findings:
    """Return the findings with the kept profiles of the plan's settings, the baseline's first.

    The others differ from the first one. Those that cannot be used are named.
    """
    rows, axes = list(runs), {cell.name: cell.axes for cell in manifest.cells}
    kept, left_out = kept_profiles(folder, sorted(axes, key=lambda cell: cell not in manifest.baselines))
    profiles = tuple(
        compared(profile, kept[0] if place else None, rows, axes[profile.cell]) for place, profile in enumerate(kept)
    )
    return found.model_copy(update={"profiles": profiles, "profiles_left_out": tuple(left_out)})


def compared(
    profile: SettingProfile, other: SettingProfile | None, runs: Iterable[RunRow], axes: Mapping[str, Any]
) -> ProfileFinding:
    """Return the finding of a profile beside the `runs`, with its differences to the `other` one, if there is one."""
    found, here = profile.found, profile.fingerprint.hardware_kind
    recorded = [run for run in runs if run.cell == profile.cell and run.value("step_seconds") is not None]
    measured = [run for run in recorded if run.hardware == here] or recorded
    steps = [step for run in measured if (step := run.value("step_seconds")) is not None]
    step = significant(median(steps)) if steps else None
    before = None if other is None else other.found
    return ProfileFinding(
        cell=profile.cell,
        label=label(axes),
        axes=dict(axes),
        task=profile.task,
        started_at=profile.started_at,
        ranks=profile.ranks,
        device=found.device,
        device_name=found.device_name,
        warmup_steps=found.warmup_steps,
        steps=found.steps,
        profiled_step_seconds=significant(found.step_seconds),
        measured_step_seconds=step,
        cost=None if step is None else significant(found.step_seconds / step, 3),
        changed=_changed(profile.fingerprint, measured),
        operators=tuple(map(_rounded, found.operators[:PLACES_SHOWN])),
        modules=tuple(map(_rounded, found.modules[:PLACES_SHOWN])),
        folder=str(SweepFolder(Path(), profile.sweep).profile(profile.cell)),
        against=None if other is None else other.cell,
        operator_differences=() if before is None else differences(by_name(before.operators), by_name(found.operators)),
        module_differences=() if before is None else differences(by_name(before.modules), by_name(found.modules)),
    )


def by_name(rows: Iterable[OperatorTime | ModuleTime]) -> dict[str, float]:
    """Return the seconds of a profile's rows by what they are called."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.words] = seconds.get(row.words, 0.0) + row.seconds
    return seconds


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[PartDifference, ...]:
    """Return the parts whose seconds differ, the largest difference first."""
    least = LEAST_SHOWN_SHARE * max(sum(before.values()), sum(after.values()))
    names = list(dict.fromkeys([*before, *after]))
    gaps = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}
    told = sorted((name for name in names if abs(gaps[name]) > least), key=lambda name: (-abs(gaps[name]), name))
    return tuple(
        PartDifference(name=name, before=significant(before.get(name, 0.0)), after=significant(after.get(name, 0.0)))
        for name in told[:PLACES_SHOWN]
    )


Row = TypeVar("Row", OperatorTime, ModuleTime)


def _rounded(row: Row) -> Row:
    device = None if row.device_seconds is None else significant(row.device_seconds)
    return row.model_copy(update={"host_seconds": significant(row.host_seconds), "device_seconds": device})


def _changed(now: Fingerprint, measured: Sequence[RunRow]) -> str | None:
    """Return what differs between the profile and the nearest of the measured runs, in words; None where nothing."""
    found = []
    for run in measured:
        pairs = [
            *_pairs("hardware", now.hardware, run.hardware.details),
            *_pairs("software", now.software, run.software),
            *_pairs("sources of", now.sources, run.sources),
        ]
        found.append("; ".join(pairs))
    if not found:
        return "no measured run of this setting is left"
    return min(found, key=len) or None


def _pairs(part: str, now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    return [f"{part} {name}" for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]
