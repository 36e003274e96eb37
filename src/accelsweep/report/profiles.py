"""The profiles of settings as a table of their own, apart from what was measured, and what two differ in, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accelsweep.core.cell import in_words
from accelsweep.core.findings import Findings
from accelsweep.core.profiles import ModuleTime, OperatorTime, PartDifference, ProfileFinding
from accelsweep.report import format as fmt
from accelsweep.report.table import Column, Entry, More, ReportTable
from accelsweep.state.profiles import PROFILE, TRACE

TITLES = ("Setting", "Measured step", "Profiled step", "Cost of looking", "Most time in")
NAMED = 3
"""So many operators stand in a row, and so many differences in a sentence."""


def profiles_table(findings: Findings) -> ReportTable:
    """Return one row for each profile; it opens to operators, modules, differences and files."""
    labels = {profile.cell: in_words(profile.axes) for profile in findings.profiles}
    return ReportTable(
        name="profiles",
        title="A closer look",
        caption="Runs of their own under torch's profiler, which costs time at every operator. None of these numbers "
        "is in a rate, an interval or a verdict.",
        columns=tuple(Column(title, title in TITLES[1:4]) for title in TITLES),
        rows=tuple(_row(profile, labels[profile.cell]) for profile in findings.profiles),
        more=tuple(tuple(_more(profile, labels)) for profile in findings.profiles),
        data=[row for profile in findings.profiles for row in _data(profile, labels[profile.cell])],
        empty="No setting was profiled.",
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
    yield _file(profile, "Trace", TRACE)
    yield _file(profile, "All rows", PROFILE)


def _file(profile: ProfileFinding, title: str, name: str) -> More:
    return More(title, f"{profile.folder}/{name}", href=f"../../{profile.folder}/{name}")


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
    """Return differences as `convolution backward 3.1 ms less, copy 0.4 ms more`."""
    if not differences:
        return "no part differs by more than 0.5 % of the step"
    return ", ".join(_difference(one) for one in differences)


def _difference(one: PartDifference) -> str:
    gap = one.after - one.before
    return f"{one.name} {fmt.number(abs(gap), 's')} {'more' if gap > 0 else 'less'}"


def _data(profile: ProfileFinding, label: str) -> Iterator[dict[str, Any]]:
    for kind, rows in (("operator", profile.operators), ("module", profile.modules)):
        for row in rows:
            times = {name: getattr(row, name) for name in ("calls", "host_seconds", "device_seconds")}
            yield {"cell": profile.cell, "label": label, "kind": kind, "name": row.words, **times}
