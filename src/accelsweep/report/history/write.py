"""Write a history's page, its figures and its points below `reports/history/NAME`."""

from __future__ import annotations

from pathlib import Path

from accelsweep.core.derived.histories import History
from accelsweep.records.layout import MARKDOWN, PAGE, REPORTS_FOLDER
from accelsweep.records.plan import name_together
from accelsweep.report.history.content import HISTORY_METHOD, HistoryContent, content_of
from accelsweep.report.html_page import render_charted
from accelsweep.report.markdown import escape, figure_text, table_text
from accelsweep.report.report_files import picture_of, replace_files
from accelsweep.report.table_model import to_csv
from accelsweep.report.units import clean_text


def history_folder(home: Path, sources: tuple[str, ...]) -> Path:
    """Return `reports/history/A+B` for these sweeps; the name of many is cut, and ends in a digest of all."""
    return home / REPORTS_FOLDER / "history" / name_together(sources)


def write_history(history: History, target: Path, command: str) -> Path:
    """Write the page with all that belongs to it to `target`; return the page. The same history gives the same bytes.

    Raises AccelsweepError if the folder cannot be written.
    """
    content = content_of(History.model_validate(clean_text(history.model_dump())), command)
    pictures = {figure.name: picture_of(figure) for figure in content.figures}
    files = {f"{name}.svg": svg for name, svg in pictures.items()}
    files |= {f"{figure.name}.csv": to_csv(figure.rows, figure.columns) for figure in content.figures}
    files |= {f"{table.name}.csv": to_csv(table.data) for table in content.tables}
    files[MARKDOWN] = _markdown(content)
    files[PAGE] = render_charted(
        "history.html.j2", content.figures, content.tables, pictures, content=content, method=HISTORY_METHOD
    )
    replace_files(files, target)
    for stale in {*target.glob("rate-*.svg"), *target.glob("rate-*.csv")}:
        if stale.name not in files:
            stale.unlink(missing_ok=True)  # of a history that had more lines
    return target / PAGE


def _markdown(content: HistoryContent) -> str:
    parts = [f"# {escape(content.title)}", f"**{escape(content.headline)}**", escape(content.order)]
    parts += [figure_text(figure) for figure in content.figures]
    for table in content.tables:
        parts += [f"## {table.title}", table_text(table)]
    parts += ["\n".join(f"- {escape(line)}" for line in content.notes)] if content.notes else []
    parts += ["## Method", "\n".join(f"{number}. {escape(line)}" for number, line in enumerate(HISTORY_METHOD, 1))]
    return "\n\n".join(parts) + "\n"
