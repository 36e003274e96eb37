"""Profiles in findings and report, alongside the measured step time, with differences from the first profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.intervals import round_significant
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.setting import label
from accelsweep.features.profile.model import (
    PROFILE_FILE,
    PartDifference,
    ProfileFinding,
    Profiles,
    SettingProfile,
    profile_folder,
    stored_profiles,
)
from accelsweep.features.profile.step_profile import TRACE_FILE, ModuleTime, OperatorTime
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.report import formatting as fmt
from accelsweep.report.table_model import Column, Detail, Entry, ReportTable
from accelsweep.results import Fingerprint

MAX_ROWS = 12
"""Maximum number of operators and of modules to show; profile.json contains all of them."""

MIN_DIFFERENCE = 0.005
"""A difference below this share of the longer step is considered noise."""

_TITLES = ("Setting", "Measured step", "Profiled step", "Profiler overhead", "Most time in")


def build_section(analysis: Analysis) -> Profiles | None:
    """Return the stored profiles of the plan's settings, the baseline's first; None if there are none.

    Differences are from the first profile.
    """
    if analysis.folder is None:
        return None
    manifest, rows = analysis.manifest, analysis.rows
    axes, baselines = {setting.name: setting.axes for setting in manifest.settings}, manifest.baselines
    stored, left_out = stored_profiles(analysis.folder, sorted(axes, key=lambda setting: setting not in baselines))
    profiles = tuple(
        compare(profile, stored[0] if place else None, rows, axes[profile.setting])
        for place, profile in enumerate(stored)
    )
    return Profiles(profiles=profiles, left_out=tuple(left_out)) if profiles or left_out else None


def compare(
    profile: SettingProfile, other: SettingProfile | None, runs: Iterable[RunRow], axes: Mapping[str, Any]
) -> ProfileFinding:
    """Return the finding on a profile, given the measured `runs`, with differences from the `other` profile."""
    found, hardware = profile.profile, profile.fingerprint.hardware_kind
    recorded = [run for run in runs if run.setting == profile.setting and run.value("step_seconds") is not None]
    measured = [run for run in recorded if run.hardware == hardware] or recorded
    steps = [step for run in measured if (step := run.value("step_seconds")) is not None]
    step = round_significant(median(steps)) if steps else None
    before = None if other is None else other.profile
    return ProfileFinding(
        setting=profile.setting,
        label=label(axes),
        axes=dict(axes),
        task=profile.task,
        started_at=profile.started_at,
        ranks=profile.ranks,
        device=found.device,
        device_name=found.device_name,
        warmup_steps=found.warmup_steps,
        steps=found.steps,
        profiled_step_seconds=round_significant(found.step_seconds),
        measured_step_seconds=step,
        cost=None if step is None else round_significant(found.step_seconds / step, 3),
        changed=_changed(profile.fingerprint, measured),
        operators=tuple(map(_rounded, found.operators[:MAX_ROWS])),
        modules=tuple(map(_rounded, found.modules[:MAX_ROWS])),
        folder=str(profile_folder(SweepFolder(Path(), profile.sweep), profile.setting)),
        against=None if other is None else other.setting,
        operator_differences=() if before is None else differences(by_name(before.operators), by_name(found.operators)),
        module_differences=() if before is None else differences(by_name(before.modules), by_name(found.modules)),
    )


def by_name(rows: Iterable[OperatorTime | ModuleTime]) -> dict[str, float]:
    """Return the time of each row in a profile, in seconds, keyed by title."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.title] = seconds.get(row.title, 0.0) + row.seconds
    return seconds


def differences(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[PartDifference, ...]:
    """Return the rows whose times differ, largest difference first."""
    threshold = MIN_DIFFERENCE * max(sum(before.values()), sum(after.values()))
    names = list(dict.fromkeys([*before, *after]))
    gaps = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in names}
    shown = sorted((name for name in names if abs(gaps[name]) > threshold), key=lambda name: (-abs(gaps[name]), name))
    return tuple(
        PartDifference(
            name=name, before=round_significant(before.get(name, 0.0)), after=round_significant(after.get(name, 0.0))
        )
        for name in shown[:MAX_ROWS]
    )


Row = TypeVar("Row", OperatorTime, ModuleTime)


def _rounded(row: Row) -> Row:
    device = None if row.device_seconds is None else round_significant(row.device_seconds)
    return replace(row, host_seconds=round_significant(row.host_seconds), device_seconds=device)


def _changed(now: Fingerprint, measured: Sequence[RunRow]) -> str | None:
    """Return what differs between the profile and the most similar measured run; None if nothing differs."""
    differences = []
    for run in measured:
        pairs = [
            *_pairs("hardware", now.hardware, run.hardware.details),
            *_pairs("software", now.software, run.software),
            *_pairs("sources of", now.sources, run.sources),
        ]
        differences.append("; ".join(pairs))
    if not differences:
        return "this setting no longer has any measured runs"
    return min(differences, key=len) or None


def _pairs(part: str, now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    return [f"{part} {name}" for name in sorted(now.keys() | then.keys()) if now.get(name) != then.get(name)]


def circumstances(profile: ProfileFinding) -> str:
    """Return what was profiled: steps, ranks, device and time."""
    on_device = any(row.device_seconds is not None for row in profile.operators)
    ranks = "" if profile.ranks == 1 else f", rank 0 of {profile.ranks}"
    times = "host times, summed over all threads" if not on_device else f"times on the {profile.device} device"
    return (
        f"{fmt.count(profile.steps, 'step')} after {profile.warmup_steps} warm-up steps{ranks}, "
        f"on {profile.device_name}, {profile.started_at[:16].replace('T', ' ')} UTC; {times}"
    )


def operator_words(row: OperatorTime) -> str:
    """Describe an operator and its time per step."""
    return f"{row.title} {fmt.number(row.seconds, 's')}"


def module_words(row: ModuleTime) -> str:
    """Describe a module by class, direction and time per step."""
    form = f" ({row.form})" if row.form else ""
    return f"{row.title}{form} {fmt.number(row.seconds, 's')}"


def difference_words(differences: Sequence[PartDifference]) -> str:
    """Format the largest differences as `convolution backward 3.1 ms less, copy 0.4 ms more`."""
    if not differences:
        return "no part differs by more than 0.5 % of the step"
    gaps = [(part.name, part.after - part.before) for part in differences[:5]]
    return ", ".join(f"{name} {fmt.number(abs(gap), 's')} {'more' if gap > 0 else 'less'}" for name, gap in gaps)


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of profiles, if there are any."""
    profiles = findings.section(Profiles)
    return [] if profiles is None else [profiles_table(profiles)]


def profiles_table(found: Profiles) -> ReportTable:
    """Return a row for each profile, which expands to operators, modules, differences and files."""
    labels = {profile.setting: profile.label for profile in found.profiles}
    left_out = "".join(f" Left out: {sentence}." for sentence in found.left_out)
    return ReportTable(
        name="profiles",
        title="A closer look",
        caption="From separate runs under torch's profiler, which adds overhead to every operator. None of these "
        f"numbers is part of a rate, an interval or a verdict.{left_out}",
        columns=tuple(Column(title, title in _TITLES[1:4]) for title in _TITLES),
        rows=tuple(_row(profile, labels[profile.setting]) for profile in found.profiles),
        details=tuple(tuple(_more(profile, labels)) for profile in found.profiles),
        data=[row for profile in found.profiles for row in _data(profile, labels[profile.setting])],
        empty=f"There is no profile to show.{left_out}",
    )


def _row(profile: ProfileFinding, label: str) -> tuple[Entry, ...]:
    most = ", ".join(operator_words(row) for row in profile.operators[:3])
    return (
        Entry(label, profile.setting),
        _seconds(profile.measured_step_seconds),
        _seconds(profile.profiled_step_seconds),
        Entry("not known" if profile.cost is None else f"{profile.cost:.2f}x", order=profile.cost),
        Entry(most),
    )


def _seconds(value: float | None) -> Entry:
    return Entry(fmt.number(value, "s"), order=value, tone="absent" if value is None else "")


def _more(profile: ProfileFinding, labels: dict[str, str]) -> Iterator[Detail]:
    yield Detail("Profiled", circumstances(profile))
    if profile.changed is not None:
        yield Detail("Not as measured", profile.changed)
    yield Detail("Operators", "; ".join(operator_words(row) for row in profile.operators))
    yield Detail("Modules", "; ".join(module_words(row) for row in profile.modules))
    if profile.against is not None:
        other = labels[profile.against]
        yield Detail("Operators against", f"{other}: {difference_words(profile.operator_differences)}")
        yield Detail("Modules against", f"{other}: {difference_words(profile.module_differences)}")
    for title, name in (("Trace", TRACE_FILE), ("All rows", PROFILE_FILE)):
        yield Detail(title, f"{profile.folder}/{name}", href=f"../../{profile.folder}/{name}")


def _data(profile: ProfileFinding, label: str) -> Iterator[dict[str, Any]]:
    for kind, rows in (("operator", profile.operators), ("module", profile.modules)):
        for row in rows:
            times = {name: getattr(row, name) for name in ("calls", "host_seconds", "device_seconds")}
            yield {"setting": profile.setting, "label": label, "kind": kind, "name": row.title, **times}
