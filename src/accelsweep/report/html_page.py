"""The page: one self-contained HTML file that opens offline, makes no request, and runs only our own scripts.

Texts are escaped by jinja2. Charts travel as JSON in which `<`, `>` and `&` are written as escapes, so that no string
can end its script element. A content security policy with the hashes of our scripts is a second defence.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup

from accelsweep.errors import AccelsweepError
from accelsweep.files import lease_folder, write_bytes_atomically
from accelsweep.records.run_record import doubt_in_words
from accelsweep.report.content import Content, method_of
from accelsweep.report.figures.figure import DataRow, Figure
from accelsweep.report.table_model import Entry, ReportTable
from accelsweep.report.units import in_about, sentence

# The libraries that draw the page's charts, as one script: bundled once a machine, because that takes seconds.

_EXPORTS = "window.vegaEmbed = vegaEmbed;"


@cache
def chart_libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script that defines `vegaEmbed`; about 0.9 MB, no request."""
    kept = _place()
    script = _read(kept) if kept else None
    if script is None:
        script = str(vl_convert.javascript_bundle(_EXPORTS, vega_lite_version()))
        if kept:
            with contextlib.suppress(OSError):  # a full disk costs the next report some seconds, and this one nothing
                write_bytes_atomically(kept, f"{_digest(script)}\n{script}".encode())
    return script


def vega_lite_version() -> str:
    """Return the Vega-Lite version that altair writes, as vl-convert names it: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _place() -> Path | None:
    """Return the file of the bundle; None where this machine has no folder that only we can write to."""
    try:
        return lease_folder() / f"charts-{vega_lite_version()}-{version('vl-convert-python')}.js"
    except (AccelsweepError, OSError):
        return None


def _read(file: Path) -> str | None:
    """Return the bundle in `file`; None where there is none, or a damaged one."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        digest, _, script = file.read_bytes().decode().partition("\n")
        return script if digest == _digest(script) else None
    return None


def _digest(script: str) -> str:
    return hashlib.sha256(script.encode()).hexdigest()


TEMPLATES = Path(__file__).with_name("templates")


def render_page(content: Content, pictures: dict[str, str]) -> str:
    """Return `index.html`. `pictures` maps a figure's name to its SVG, shown where scripts do not run."""
    return render_charted(
        "index.html.j2",
        content.figures,
        content.tables,
        pictures,
        content=content,
        findings=content.findings,
        advice=content.findings.recommendation,
        method=method_of(content.findings),
    )


def render_charted(
    template: str, figures: Sequence[Figure], tables: Sequence[ReportTable], pictures: dict[str, str], **values: Any
) -> str:
    """Return a page with charts and tables that live, from a template with the places for our scripts and data."""
    scripts = [chart_libraries(), (TEMPLATES / "page.js").read_text("utf-8")]
    return (
        _environment()
        .get_template(template)
        .render(
            charts=embed_json({figure.name: _chart(figure) for figure in figures}),
            beyond=embed_json({table.name: _packed_rows(table) for table in tables if table.beyond}),
            opened=embed_json({table.name: _packed_more(table) for table in tables if table.beyond and table.more}),
            pictures={name: Markup(svg) for name, svg in pictures.items()},  # noqa: S704 (made by vl-convert, which escapes)
            style=_style(),
            scripts=[Markup(script) for script in scripts],  # noqa: S704 (our own file and the bundled libraries)
            script_hashes=[_hash(script) for script in scripts],
            **values,
        )
    )


def render_static(template: str, **values: Any) -> str:
    """Return a page without scripts and charts, in the style of `index.html`."""
    return _environment().get_template(template).render(style=_style(), **values)


def _style() -> Markup:
    return Markup((TEMPLATES / "style.css").read_text("utf-8"))  # noqa: S704 (our own file)


def embed_json(value: Any) -> Markup:
    """Return JSON that is safe inside a script element, whatever strings it holds."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (every character that HTML gives a meaning is escaped above)


def _chart(figure: Figure) -> dict[str, Any]:
    return {**figure.fluid_specifications(), "columns": list(figure.columns), "rows": pack(figure.drawn)}


def _packed_rows(table: ReportTable) -> list[dict[str, Any]]:
    """Return the rows that are not set, by column: the fields that any of their entries uses, packed."""
    columns, empty = [], asdict(Entry(""))
    for entries in zip(*table.beyond, strict=True):
        fields = [asdict(entry) for entry in entries]
        used = [name for name in empty if name == "text" or any(field[name] != empty[name] for field in fields)]
        columns.append(pack([{name: field[name] for name in used} for field in fields]))
    return columns


def _packed_more(table: ReportTable) -> list[list[dict[str, Any]]]:
    """Return what the rows open to that are not set."""
    return [[asdict(line) for line in lines] for lines in table.more[len(table.shown) :]]


def pack(rows: Sequence[DataRow]) -> dict[str, Any]:
    """Return rows as columns. A column of texts has its different texts (`of`) and, for each row, an index (`at`)."""
    columns: dict[str, Any] = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        if all(isinstance(value, str) for value in values):
            places = {text: place for place, text in enumerate(dict.fromkeys(values))}
            columns[key] = {"of": list(places), "at": [places[value] for value in values]}
        else:
            columns[key] = values
    return columns


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sentence"] = sentence
    environment.filters["in_about"] = in_about
    environment.filters["in_words"] = doubt_in_words
    environment.filters["capital"] = lambda text: text[:1].upper() + text[1:]
    return environment
