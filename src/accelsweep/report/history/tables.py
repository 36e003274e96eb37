"""The tables of a history: the changes, and all points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accelsweep.core.derived.histories import History, HistoryLine, LinePoint, RateChange
from accelsweep.report import units as fmt
from accelsweep.report.table_model import Column, Entry, ReportTable


def changes_table(history: History, titles: Sequence[str]) -> ReportTable:
    """Return a row for each change, in the order of the lines and of their points."""
    found = [(title, line, change) for title, line in _titled(history, titles) for change in line.changes]
    return ReportTable(
        name="changes",
        title="Changes",
        caption="The ratio is the level after a change to that before. The intervals hold together at "
        f"{fmt.share(history.confidence)}, for every place where a change could stand.",
        columns=(Column("Setting"), Column("From"), Column("Rate", numeric=True), Column("Change"), Column("Software")),
        rows=tuple(
            (
                Entry(title),
                Entry(line.points[change.at].name, line.points[change.at].day, code=True),
                Entry(fmt.ratio_text(change.ratio), order=change.ratio.value),
                Entry(change.verdict, tone=change.verdict),
                Entry(", ".join(change.software) or "as before", tone="" if change.software else "absent"),
            )
            for title, line, change in found
        ),
        data=[_change_data(title, line, change) for title, line, change in found],
        empty="No change was found.",
    )


def points_table(history: History, titles: Sequence[str]) -> ReportTable:
    """Return a row for each point of each line, in order."""
    found = [(title, line, point) for title, line in _titled(history, titles) for point in line.points]
    headings = ("Setting", "Point", "Rate", "Blocks", "From", "Measured")
    return ReportTable(
        name="points",
        title="Points",
        caption="Every point with its own interval, which belongs to no family.",
        columns=tuple(Column(heading, heading in ("Rate", "Blocks")) for heading in headings),
        rows=tuple(
            (
                Entry(title),
                Entry(point.name, point.version or "", code=True),
                Entry(fmt.estimate_text(point.rate), order=point.rate.value),
                Entry(str(point.rate.count), order=point.rate.count),
                Entry(point.source, point.disturbed or "", "disturbed" if point.disturbed else ""),
                Entry(point.measured[:16].replace("T", " "), _software(point)),
            )
            for title, _, point in found
        ),
        data=[_point_data(title, line, point) for title, line, point in found],
        empty="There is no point.",
    )


def _titled(history: History, titles: Sequence[str]) -> Iterator[tuple[str, HistoryLine]]:
    return zip(titles, history.lines, strict=True)


def _software(point: LinePoint) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(point.software.items()))


def _change_data(title: str, line: HistoryLine, change: RateChange) -> dict[str, object]:
    point = line.points[change.at]
    return {
        "setting": title,
        "cell": line.cell,
        "hardware": line.hardware,
        "at": point.name,
        "commit": point.commit,
        "committed": point.committed,
        "measured": point.measured,
        "ratio": change.ratio.value,
        "low": change.ratio.low,
        "high": change.ratio.high,
        "verdict": change.verdict.value,
        "software": ", ".join(change.software),
    }


def _point_data(title: str, line: HistoryLine, point: LinePoint) -> dict[str, object]:
    plain = point.model_dump(mode="json", exclude={"rate", "software"})
    rate = {f"rate.{name}": getattr(point.rate, name) for name in ("value", "low", "high", "count")}
    first = {"setting": title, "cell": line.cell, "hardware": line.hardware, "machine": line.machine}
    return {**first, **plain, **rate, "software": _software(point)}
