"""The profiles of settings as a table of their own, apart from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelsweep.config.setting import axes_in_words
from accelsweep.core.recorded.profiles import ProfileFinding
from accelsweep.records.findings import Findings
from accelsweep.records.layout import TRACE_FILE
from accelsweep.report import units as fmt
from accelsweep.report.profiles.words import circumstances, difference_words, module_words, operator_words
from accelsweep.report.table_model import Column, Entry, More, ReportTable
from accelsweep.state.profiles import PROFILE

PROFILE_TITLES = ("Setting", "Measured step", "Profiled step", "Cost of looking", "Most time in")
NAMED = 3
"""So many operators stand in a row."""


def profiles_table(findings: Findings) -> ReportTable:
    """Return one row for each profile; it opens to operators, modules, differences and files."""
    labels = {profile.cell: axes_in_words(profile.axes) for profile in findings.profiles}
    left_out = "".join(f" Left out: {sentence}." for sentence in findings.profiles_left_out)
    return ReportTable(
        name="profiles",
        title="A closer look",
        caption="Runs of their own under torch's profiler, which costs time at every operator. None of these numbers "
        f"is in a rate, an interval or a verdict.{left_out}",
        columns=tuple(Column(title, title in PROFILE_TITLES[1:4]) for title in PROFILE_TITLES),
        rows=tuple(_row(profile, labels[profile.cell]) for profile in findings.profiles),
        more=tuple(tuple(_more(profile, labels)) for profile in findings.profiles),
        data=[row for profile in findings.profiles for row in _data(profile, labels[profile.cell])],
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
