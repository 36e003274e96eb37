"""The profiles of a sweep beside its findings: each with the measured step of its setting, and what two differ in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from accelsweep.analysis.analyse_sweep import Analysis
from accelsweep.analysis.intervals import significant
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.setting import axes_in_words, label
from accelsweep.features.profile.model import (
    PROFILE,
    TRACE_FILE,
    ModuleTime,
    OperatorTime,
    PartDifference,
    ProfileFinding,
    Profiles,
    SettingProfile,
    kept_profiles,
    profile_folder,
)
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Fingerprint
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, More, ReportTable

PLACES_SHOWN = 12
"""So many operators and modules of a profile are shown; its document has all."""

LEAST_SHOWN_SHARE = 0.005
"""A difference below this share of the longer step is left out: the next profile would have another one."""


def build_section(analysis: Analysis) -> Profiles | None:
    """Return the kept profiles of the plan's settings, the baseline's first; None where there are none.

    The others differ from the first one. Those that cannot be used are named.
    """
    if analysis.folder is None:
        return None
    manifest, rows = analysis.manifest, analysis.rows
    axes = {cell.name: cell.axes for cell in manifest.cells}
    kept, left_out = kept_profiles(analysis.folder, sorted(axes, key=lambda cell: cell not in manifest.baselines))
    profiles = tuple(
        compared(profile, kept[0] if place else None, rows, axes[profile.cell]) for place, profile in enumerate(kept)
    )
    return Profiles(profiles=profiles, left_out=tuple(left_out)) if profiles or left_out else None


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
        folder=str(profile_folder(SweepFolder(Path(), profile.sweep), profile.cell)),
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


# A profile in words: what was looked at, the time of operators and modules, and what two profiles differ in.

TOLD = 5
"""So many differences stand in a sentence."""


def circumstances(profile: ProfileFinding) -> str:
    """Return what was looked at, in words."""
    ranks = "" if profile.ranks == 1 else f", rank 0 of {profile.ranks}"
    times = "times of the host, all threads" if not _on_device(profile) else f"times on the {profile.device} device"
    return (
        f"{fmt.count(profile.steps, 'step')} after {profile.warmup_steps} that do not count{ranks}, "
        f"on {profile.device_name}, {profile.started_at[:16].replace('T', ' ')} UTC; {times}"
    )


def _on_device(profile: ProfileFinding) -> bool:
    return any(row.device_seconds is not None for row in profile.operators)


def operator_words(row: OperatorTime) -> str:
    """Return an operator with its time in a step."""
    return f"{row.words} {fmt.number(row.seconds, 's')}"


def module_words(row: ModuleTime) -> str:
    """Return a module with its class, its direction and its time in a step."""
    form = f" ({row.form})" if row.form else ""
    return f"{row.words}{form} {fmt.number(row.seconds, 's')}"


def difference_words(differences: Sequence[PartDifference]) -> str:
    """Return the largest differences as `convolution backward 3.1 ms less, copy 0.4 ms more`."""
    if not differences:
        return "no part differs by more than 0.5 % of the step"
    return ", ".join(_difference(one) for one in differences[:TOLD])


def _difference(one: PartDifference) -> str:
    gap = one.after - one.before
    return f"{one.name} {fmt.number(abs(gap), 's')} {'more' if gap > 0 else 'less'}"


# The profiles of settings as a table of their own, apart from what was measured.

PROFILE_TITLES = ("Setting", "Measured step", "Profiled step", "Cost of looking", "Most time in")

NAMED = 3
"""So many operators stand in a row."""


def tables(findings: Findings) -> list[ReportTable]:
    """Return the table of the profiles, where there are some."""
    profiles = findings.section(Profiles)
    return [] if profiles is None else [profiles_table(profiles)]


def profiles_table(found: Profiles) -> ReportTable:
    """Return one row for each profile; it opens to operators, modules, differences and files."""
    labels = {profile.cell: axes_in_words(profile.axes) for profile in found.profiles}
    left_out = "".join(f" Left out: {sentence}." for sentence in found.left_out)
    return ReportTable(
        name="profiles",
        title="A closer look",
        caption="Runs of their own under torch's profiler, which costs time at every operator. None of these numbers "
        f"is in a rate, an interval or a verdict.{left_out}",
        columns=tuple(Column(title, title in PROFILE_TITLES[1:4]) for title in PROFILE_TITLES),
        rows=tuple(_row(profile, labels[profile.cell]) for profile in found.profiles),
        more=tuple(tuple(_more(profile, labels)) for profile in found.profiles),
        data=[row for profile in found.profiles for row in _data(profile, labels[profile.cell])],
        empty=f"No profile is left to show.{left_out}",
    )


def _row(profile: ProfileFinding, label: str) -> tuple[Entry, ...]:
    most = ", ".join(operator_words(row) for row in profile.operators[:NAMED])
    return (
        Entry(label, profile.cell),
        _seconds(profile.measured_step_seconds),
        _seconds(profile.profiled_step_seconds),
        Entry("not known" if profile.cost is None else f"{profile.cost:.2f}x", order=profile.cost),
        Entry(most),
    )


def _seconds(value: float | None) -> Entry:
    return Entry(fmt.number(value, "s"), order=value, tone="absent" if value is None else "")


def _more(profile: ProfileFinding, labels: dict[str, str]) -> Iterator[More]:
    yield More("Profiled", circumstances(profile))
    if profile.changed is not None:
        yield More("Not as measured", profile.changed)
    yield More("Operators", "; ".join(operator_words(row) for row in profile.operators))
    yield More("Modules", "; ".join(module_words(row) for row in profile.modules))
    if profile.against is not None:
        other = labels[profile.against]
        yield More("Operators against", f"{other}: {difference_words(profile.operator_differences)}")
        yield More("Modules against", f"{other}: {difference_words(profile.module_differences)}")
    yield _file(profile, "Trace", TRACE_FILE)
    yield _file(profile, "All rows", PROFILE)


def _file(profile: ProfileFinding, title: str, name: str) -> More:
    return More(title, f"{profile.folder}/{name}", href=f"../../{profile.folder}/{name}")


def _data(profile: ProfileFinding, label: str) -> Iterator[dict[str, Any]]:
    for kind, rows in (("operator", profile.operators), ("module", profile.modules)):
        for row in rows:
            times = {name: getattr(row, name) for name in ("calls", "host_seconds", "device_seconds")}
            yield {"cell": profile.cell, "label": label, "kind": kind, "name": row.words, **times}
