"""Writes a sweep's report: all files are built in a temporary folder, then moved into place, the page last."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import vl_convert

from accelsweep.errors import AccelsweepError, InputError
from accelsweep.files import set_aside_non_file
from accelsweep.records.findings import Findings
from accelsweep.records.layout import MARKDOWN, PAGE, ReportPlace
from accelsweep.report.captions import CAPTIONS
from accelsweep.report.content import Content, build_content
from accelsweep.report.figures.figure import Figure
from accelsweep.report.html_page import render_page, vega_lite_version
from accelsweep.report.markdown import render_markdown
from accelsweep.report.summary_card import SUMMARY_SVG, render_summary
from accelsweep.report.table_model import to_csv


def write_report(folder: ReportPlace, *, summary: bool = False) -> Path:
    """Write `reports/NAME/` with `write_files`, and return the path of its page."""
    write_files(folder, summary=summary)
    return folder.report / PAGE


def write_files(folder: ReportPlace, method: str | None = None, *, summary: bool = False) -> list[str]:
    """Write `reports/NAME/` from the findings of one or several sweeps, and return the names of its files.

    If `summary` is set, or there is a summary card already, the card is written, too. Its files are not among the
    names, because it can be drawn again.

    The same findings, steps and `method` link produce the same bytes. Other files in the folder are left untouched.
    Raises InputError if there are no findings yet, DamagedFile if they are damaged, AccelsweepError if the folder
    cannot be written.
    """
    if not folder.findings.exists():
        raise InputError(
            f"{folder.findings} is missing; generate it with: accelsweep report {folder.findings.parent.name}"
        )
    content = build_content(Findings.read(folder.findings), folder, method)
    files = render_files(content)
    wants_card = summary or (folder.report / SUMMARY_SVG).exists()
    replace_files({**files, **(render_summary(content) if wants_card else {})}, folder.report)
    for stale in _possible_files(content, folder.report) - files.keys():
        (folder.report / stale).unlink(missing_ok=True)
    return list(files)


def _possible_files(content: Content, report: Path) -> set[str]:
    """Return the names of the figures and tables that an earlier version of the report may have had."""
    names = [*CAPTIONS, *(table.name for table in content.tables)]
    series = (path.name for path in report.glob("series-*-*.*"))
    return {f"{name}.{suffix}" for name in names for suffix in ("svg", "csv")}.union(series)


def render_files(content: Content) -> dict[str, str]:
    """Return the text of every report file, keyed by name.

    A figure that is not drawn and a table without rows have no file: the page says why.
    """
    pictures = {figure.name: render_svg(figure) for figure in content.figures}
    files = {f"{name}.svg": svg for name, svg in pictures.items()}
    files |= {f"{figure.name}.csv": to_csv(figure.rows, figure.columns) for figure in content.figures}
    files |= {f"{table.name}.csv": to_csv(table.data) for table in content.tables if table.data}
    files |= {f"{name}.svg": render_svg(figure) for name, figure in content.pictures.items()}
    files[MARKDOWN] = render_markdown(content)
    files[PAGE] = render_page(content, pictures)
    return files


def render_svg(figure: Figure) -> str:
    """Return a figure as SVG."""
    return str(vl_convert.vegalite_to_svg(figure.static_specification(), vega_lite_version())) + "\n"


def replace_files(files: Mapping[str, str | bytes], target: Path) -> None:
    """Write `files` (name -> text or bytes) to the folder `target`; raise AccelsweepError if they cannot be written.

    A reader never sees a partial file, and the page never links to a missing file.
    """
    try:
        target.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part"))
        try:
            for name, body in files.items():
                (building / name).write_bytes(body if isinstance(body, bytes) else body.encode("utf-8"))
            for name in sorted(files, key=lambda name: name == PAGE):
                set_aside_non_file(target / name)
                (building / name).replace(target / name)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        where = error.filename or target
        message = f"cannot write the report: {where}: {error.strerror}; make the folder writable or free some space"
        raise AccelsweepError(message) from error
