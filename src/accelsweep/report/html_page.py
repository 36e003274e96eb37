"""The page: a self-contained HTML file that works offline, makes no requests, and runs only our own scripts.

jinja2 escapes text. The data of charts and long tables, and the chart libraries, are compressed and in Base64, so that
no string can end its script element. A content security policy with the hashes of our scripts is a second line of
defence.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import pyarrow as pa
import vl_convert
from markupsafe import Markup

from accelsweep.errors import AccelsweepError
from accelsweep.files import lease_folder, write_bytes_atomically
from accelsweep.records.run_record import doubt_description
from accelsweep.report.content import Content, method_of
from accelsweep.report.figures.figure import DataRow, Figure
from accelsweep.report.formatting import capitalized, next_step, sentence
from accelsweep.report.table_model import Entry, ReportTable

TEMPLATES = Path(__file__).with_name("templates")


def render_page(content: Content, pictures: dict[str, str]) -> str:
    """Return `index.html`. `pictures` maps figure names to SVGs, which are shown if scripts do not run."""
    return render_interactive(
        TEMPLATES / "index.html.j2",
        content.figures,
        content.tables,
        pictures,
        content=content,
        findings=content.findings,
        advice=content.findings.recommendation,
        method=method_of(content.findings),
    )


def render_interactive(
    template: Path, figures: Sequence[Figure], tables: Sequence[ReportTable], pictures: dict[str, str], **values: Any
) -> str:
    """Return a page with interactive charts and tables, from a template that embeds our scripts and their data."""
    script = (TEMPLATES / "page.js").read_text("utf-8")
    long_tables = [table for table in tables if table.hidden_rows]
    charts = {
        figure.name: {
            **figure.fluid_specifications(),
            "columns": list(figure.columns),
            "rows": pack(figure.drawn),
        }
        for figure in figures
    }
    details = {
        table.name: [[vars(line) for line in lines] for lines in table.details[len(table.visible_rows) :]]
        for table in long_tables
        if table.details
    }
    beyond = {table.name: _packed_rows(table) for table in long_tables}
    return render_static(
        template,
        data=zipped(json.dumps({"charts": charts, "beyond": beyond, "opened": details}, allow_nan=False)),
        libraries=_zipped_libraries(),
        pictures={name: _without_descriptions(svg) for name, svg in pictures.items()},
        script=Markup(script),  # noqa: S704 (our own file)
        script_hashes=[
            "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for text in (chart_libraries(), script)
        ],
        **values,
    )


def render_static(template: Path, **values: Any) -> str:
    """Return a page in the style of `index.html`, rendered from a template and its values."""
    style = Markup((TEMPLATES / "style.css").read_text("utf-8"))  # noqa: S704 (our own file)
    return _environment(template.parent).get_template(template.name).render(style=style, **values)


def zipped(text: str) -> str:
    """Return `text` compressed, in Base64: the libraries take half as much then, and the data of long tables a fifth.

    pyarrow's zlib is used because its version is pinned, so that the same text gives the same bytes everywhere.
    """
    return base64.b64encode(pa.compress(text.encode(), "gzip", asbytes=True)).decode()


_DESCRIPTION = re.compile(r' (?:role|aria-[a-z]+)="[^"<>]*"')


def _without_descriptions(svg: str) -> Markup:
    """Return a picture without the descriptions of its marks, half of its size; the page describes it as a whole."""
    return Markup(_DESCRIPTION.sub("", svg))  # noqa: S704 (made by vl-convert, which escapes)


def _packed_rows(table: ReportTable) -> list[dict[str, Any]]:
    """Return the hidden rows, packed by column; each column includes only the fields that its entries use."""
    columns = []
    for entries in zip(*table.hidden_rows, strict=True):
        values = {name: [getattr(entry, name) for entry in entries] for name in _EMPTY}
        used = (name for name in values if name == "text" or values[name].count(_EMPTY[name]) < len(entries))
        columns.append({name: _packed(values[name]) for name in used})
    return columns


_EMPTY = vars(Entry(""))


def pack(rows: Sequence[DataRow]) -> dict[str, Any]:
    """Return rows as columns. Text columns become lists of distinct strings (`of`) and of each row's index (`at`)."""
    return {key: _packed([row[key] for row in rows]) for key in rows[0]}


def _packed(values: list[Any]) -> Any:
    if not all(issubclass(kind, str) for kind in set(map(type, values))):
        return values
    indices = {text: index for index, text in enumerate(dict.fromkeys(values))}
    return {"of": list(indices), "at": [indices[value] for value in values]}


@cache
def _environment(folder: Path) -> jinja2.Environment:
    """Return the jinja2 environment for the templates in `folder`, which may include our own templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader((TEMPLATES, folder)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "sentence": sentence,
        "next_step": next_step,
        "in_words": doubt_description,
        "capital": capitalized,
    }
    return environment


@cache
def chart_libraries() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script of about 0.9 MB that defines `vegaEmbed`.

    Bundling takes seconds, so the script is cached in a file, provided that only we can write to its folder. A damaged
    file is replaced; if there is no such folder or no disk space, the script is not cached.
    """
    file = None
    with contextlib.suppress(AccelsweepError, OSError):
        file = lease_folder() / f"charts-{vega_lite_version()}-{version('vl-convert-python')}.js"
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            digest, _, script = file.read_bytes().decode().partition("\n")
            if digest == hashlib.sha256(script.encode()).hexdigest():
                return script
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vega_lite_version()))
    if file is not None:
        with contextlib.suppress(OSError):
            write_bytes_atomically(file, f"{hashlib.sha256(script.encode()).hexdigest()}\n{script}".encode())
    return script


@cache
def _zipped_libraries() -> str:
    return zipped(chart_libraries())


def vega_lite_version() -> str:
    """Return the Vega-Lite version that altair targets, in vl-convert's notation: `6.4`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
