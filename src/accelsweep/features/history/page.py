"""The page of a history: headline, figures, tables and method, written to `reports/history/NAME`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.setting import describe_axes
from accelsweep.features.history.figure import LineFigure, describe_amount, line_figure
from accelsweep.features.history.model import History, HistoryLine, LinePoint, Order, RateChange
from accelsweep.records.layout import MARKDOWN, PAGE, REPORTS_FOLDER
from accelsweep.records.plan import joined_name
from accelsweep.report import formatting as fmt
from accelsweep.report.formatting import clean_text
from accelsweep.report.html_page import render_interactive
from accelsweep.report.markdown import escape, figure_text, table_text
from accelsweep.report.report_files import render_svg, replace_files
from accelsweep.report.table_model import Column, Entry, ReportTable, to_csv

MAX_FIGURES = 24
"""Maximum lines to draw, lines with changes first. The tables have all lines."""

_MACHINE_ID = re.compile("[0-9a-f]{16}")
"""A machine's ID in records, as created by `devices.cpu`."""


def changes_table(history: History, titles: Sequence[str]) -> ReportTable:
    """Return a row for each change."""
    changes = [(title, line, change) for title, line in _titled(history, titles) for change in line.changes]
    return ReportTable(
        name="changes",
        title="Changes",
        caption="The ratio is the level after a change to that before. The intervals hold simultaneously "
        f"at {fmt.share(history.confidence)}, for every place where a change could be.",
        columns=(Column("Setting"), Column("From"), Column("Rate", numeric=True), Column("Change"), Column("Software")),
        rows=tuple(
            (
                Entry(title),
                Entry(line.points[change.at].name, line.points[change.at].day, code=True),
                Entry(fmt.ratio_text(change.ratio), order=change.ratio.value),
                Entry(change.verdict, tone=change.verdict),
                Entry(", ".join(change.software) or "as before", tone="" if change.software else "absent"),
            )
            for title, line, change in changes
        ),
        data=[_change_data(title, line, change) for title, line, change in changes],
        empty="No change was found.",
    )


def points_table(history: History, titles: Sequence[str]) -> ReportTable:
    """Return a row for each point."""
    points = [(title, line, point) for title, line in _titled(history, titles) for point in line.points]
    headings = ("Setting", "Point", "Rate", "Blocks", "From", "Measured")
    return ReportTable(
        name="points",
        title="Points",
        caption="Every point with its own interval, not widened for simultaneous comparisons.",
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
            for title, _, point in points
        ),
        data=[_point_data(title, line, point) for title, line, point in points],
        empty="There is no point.",
    )


def _titled(history: History, titles: Sequence[str]) -> Iterator[tuple[str, HistoryLine]]:
    return zip(titles, history.lines, strict=True)


def _software(point: LinePoint) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(point.software.items()))


def _change_data(title: str, line: HistoryLine, change: RateChange) -> dict[str, object]:
    point = line.points[change.at]
    return {
        "label": title,
        "setting": line.setting,
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
    plain = point.model_dump(mode="json", exclude={"name", "rate", "software"})
    rate = {f"rate.{name}": getattr(point.rate, name) for name in ("value", "low", "high", "count")}
    first = {"label": title, "setting": line.setting, "hardware": line.hardware, "machine": line.machine}
    return {**first, **plain, **rate, "software": _software(point)}


HISTORY_METHOD = (
    "A point is the geometric mean of a setting's rates in one sweep, at one commit. Its line is Student's interval "
    "over the blocks.",
    "A line holds one setting on one machine. Machines are never mixed.",
    "A regression tree over the points, pruned by Schwarz's criterion, proposes where the level changes.",
    "A proposed change is kept if the t-interval of its step excludes zero.",
    "Its noise is that of the points around their levels, and at least that of the blocks within the points.",
    "The intervals hold simultaneously for all places where a change could be.",
    "Disturbed points are drawn as crosses and do not count.",
)


@dataclass(frozen=True)
class HistoryContent:
    """The content of the page. `notes` names settings for which changes were not searched."""

    title: str
    headline: str
    order: str
    strip: tuple[str, ...]
    notes: tuple[str, ...]
    figures: tuple[LineFigure, ...]
    tables: tuple[ReportTable, ...]
    command: str


def content_of(history: History, command: str) -> HistoryContent:
    """Return the content of the page; `command` recreates it."""
    titles = line_titles(history)
    drawn = sorted(range(len(titles)), key=lambda number: not history.lines[number].changes)[:MAX_FIGURES]
    figures = (line_figure(f"rate-{place}", titles[at], history.lines[at]) for place, at in enumerate(drawn, 1))
    return HistoryContent(
        title=f"History of {fmt.count(len(history.sources), 'sweep')}",
        headline=headline(history),
        order=order_sentence(history),
        strip=_strip(history),
        notes=(*notes(history, titles), *_undrawn(titles)),
        figures=tuple(figures),
        tables=(changes_table(history, titles), points_table(history, titles)),
        command=command,
    )


def line_titles(history: History) -> list[str]:
    """Return a unique title for each line: the setting, with the machine if there are several."""
    labels = [describe_axes(line.axes) for line in history.lines]
    machines = list(dict.fromkeys((line.hardware, line.machine) for line in history.lines))
    if len(machines) == 1:
        return _numbered(labels)
    hardware = [line.hardware for line in history.lines]
    twins = {name for name in hardware if sum(other == name for other, _ in machines) > 1}
    places = [
        f"{line.hardware}, machine {_short(line.machine)}" if line.hardware in twins else line.hardware
        for line in history.lines
    ]
    return _numbered([f"{label}, {place}" for label, place in zip(labels, places, strict=True)])


def _short(machine: str | None) -> str:
    """Return the first digits of a machine's ID, or the name of a fleet's node."""
    name = str(machine)
    return name[:8] if _MACHINE_ID.fullmatch(name) else name


def _numbered(titles: Sequence[str]) -> list[str]:
    """Number the titles that occur more than once."""
    counts: dict[str, int] = {}
    numbered = []
    for title in titles:
        counts[title] = counts.get(title, 0) + 1
        numbered.append(f"{title} ({counts[title]})" if titles.count(title) > 1 else title)
    return numbered


def headline(history: History) -> str:
    """Return the number of changes and the largest one, or that there is none."""
    changed = [(line, change) for line in history.lines for change in line.changes]
    lines = fmt.count(len(history.lines), "line")
    if not changed:
        judged = any(not line.reason for line in history.lines)
        return f"{'No change was found' if judged else 'There are too few points to find a change'} in {lines}"
    line, change = max(changed, key=lambda pair: abs(pair[1].ratio.value - 1.0))
    largest = f"{describe_amount(change)} at {line.points[change.at].name}"
    if len(changed) == 1:
        return f"1 change in {lines}: {largest}"
    return f"{len(changed)} changes in {lines}: the largest is {largest}"


def order_sentence(history: History) -> str:
    """Return how the points are ordered, and why."""
    by = "date of their commits" if history.order is Order.commit_date else "date of their measurement"
    return f"Points are ordered by the {by}, because {history.order_reason}."


def _strip(history: History) -> tuple[str, ...]:
    days = sorted(point.measured[:10] for line in history.lines for point in line.points)
    versions = dict.fromkeys(point.software.get("torch", "") for line in history.lines for point in line.points)
    torch = [version for version in versions if version]
    return (
        fmt.count(sum(len(line.points) for line in history.lines), "point"),
        *dict.fromkeys(line.hardware for line in history.lines),
        *((f"torch {', '.join(torch)}",) if torch else ()),
        f"measured {' to '.join(dict.fromkeys((days[0], days[-1])))}",
        f"{fmt.share(history.confidence)} sure of all {fmt.count(history.family, 'place')} at once",
    )


def notes(history: History, titles: Sequence[str]) -> list[str]:
    """Return why changes were not searched for: lines with few points, and settings with one."""
    reasons: dict[str, list[str]] = {}
    for title, line in zip(titles, history.lines, strict=True):
        if line.reason:
            reasons.setdefault(line.reason, []).append(title)
    few = [f"{_first_of(lines)}: {reason}." for reason, lines in reasons.items()]
    alone = [f"{_first_of(history.alone)}: one point only, on its machine."] if history.alone else []
    return [*few, *alone]


def _first_of(titles: Sequence[str]) -> str:
    return titles[0] if len(titles) == 1 else f"{titles[0]}, and {fmt.count(len(titles) - 1, 'other')}"


def _undrawn(titles: Sequence[str]) -> list[str]:
    left = len(titles) - MAX_FIGURES
    return [f"{fmt.count(left, 'further line')} without a figure; the tables have all of them."] if left > 0 else []


def history_folder(home: Path, sources: tuple[str, ...]) -> Path:
    """Return `reports/history/A+B` for these sweeps; a long name is truncated and ends in a digest."""
    return home / REPORTS_FOLDER / "history" / joined_name(sources)


def write_history(history: History, target: Path, command: str) -> Path:
    """Write the page with its files to the folder `target`, reproducibly, and return the page's path.

    Raises AccelsweepError if the folder cannot be written.
    """
    content = content_of(History.model_validate(clean_text(history.model_dump())), command)
    pictures = {figure.name: render_svg(figure) for figure in content.figures}
    files = {f"{name}.svg": svg for name, svg in pictures.items()}
    files |= {f"{figure.name}.csv": to_csv(figure.rows, figure.columns) for figure in content.figures}
    files |= {f"{table.name}.csv": to_csv(table.data) for table in content.tables}
    files[MARKDOWN] = _markdown(content)
    files[PAGE] = render_interactive(
        Path(__file__).with_name("history.html.j2"),
        content.figures,
        content.tables,
        pictures,
        content=content,
        method=HISTORY_METHOD,
    )
    replace_files(files, target)
    for stale in {*target.glob("rate-*.svg"), *target.glob("rate-*.csv")}:
        if stale.name not in files:
            stale.unlink(missing_ok=True)  # from an earlier page with more lines
    return target / PAGE


def _markdown(content: HistoryContent) -> str:
    parts = [f"# {escape(content.title)}", f"**{escape(content.headline)}**", escape(content.order)]
    parts += [figure_text(figure) for figure in content.figures]
    for table in content.tables:
        parts += [f"## {table.title}", table_text(table)]
    parts += ["\n".join(f"- {escape(line)}" for line in content.notes)] if content.notes else []
    parts += ["## Method", "\n".join(f"{number}. {escape(line)}" for number, line in enumerate(HISTORY_METHOD, 1))]
    return "\n\n".join(parts) + "\n"
