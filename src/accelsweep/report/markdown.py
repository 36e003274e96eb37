"""The report as Markdown that a forge renders: the same content as the page, with the static pictures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from accelsweep.records.run_record import doubt_in_words
from accelsweep.report.content import Amber, Content, method_of
from accelsweep.report.figures.figure import Figure
from accelsweep.report.table_model import Entry, More, ReportTable
from accelsweep.report.units import in_about, sentence

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&@])")


def escape(text: str) -> str:
    """Return `text` as Markdown that renders as exactly these characters, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code_block(text: str) -> str:
    """Return a fenced block around `text`, with a fence that is longer than any in it."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{text}\n{fence}"


def render_markdown(content: Content) -> str:
    """Return the whole `report.md`."""
    findings = content.findings
    parts = [f"# {escape(findings.sweep)}", *_first_screen(content), "## Figures"]
    parts += [figure_text(figure) for figure in content.others]
    parts += _listed(f"{skipped.caption.title}: not drawn, {skipped.reason}" for skipped in content.skipped)
    for table in content.tables:
        drawn = [figure_text(figure)] if (figure := content.figure_of(table)) else []
        parts += [f"## {table.title}", *drawn, table_text(table)]
        parts += _listed(content.absent) if table.name == "cells" else []
    if findings.refusals:
        parts += ["## Refused comparisons", *_listed(findings.refusals)]
    parts += [
        "## Method",
        "\n".join(f"{number}. {escape(line)}" for number, line in enumerate(method_of(content.findings), 1)),
    ]
    parts += [f"More in [docs/method.md]({content.method})."] if content.method else []
    parts += ["## How to reproduce", code_block(findings.command)]
    parts.append(f"Records: SHA-256 `{findings.records_sha256}`, plan revision {findings.revision}.")
    return "\n\n".join(parts) + "\n"


def _first_screen(content: Content) -> list[str]:
    advice = content.findings.recommendation
    parts = [f"**{escape(content.headline)}** ({advice.certainty})", escape(advice.detail)]
    parts += [figure_text(content.first)] if isinstance(content.first, Figure) else []
    if content.tiles:
        head = " | ".join(escape(tile.name) for tile in content.tiles)
        values = " | ".join(escape(" ".join((tile.value, tile.detail))) for tile in content.tiles)
        parts.append(f"| {head} |\n|{' --- |' * len(content.tiles)}\n| {values} |")
    parts += [_amber(content.amber)] if content.amber else []
    parts += [f"_{escape(' · '.join(content.strip))}_", *_how_sure(content)]
    return [part for part in parts if part]


def _amber(amber: Amber) -> str:
    code = f" (`{amber.code}`)" if amber.code else ""
    rest = f": {escape(amber.remedy)}" if amber.remedy else ""
    minutes = f"; {escape(amber.minutes)}" if amber.minutes else ""
    return f"**{escape(amber.words)}**{code}{rest}{minutes}."


def _how_sure(content: Content) -> list[str]:
    advice = content.findings.recommendation
    parts = ["## How sure this is", escape(" · ".join(content.scope))]
    if content.doubts:
        parts.append("### Reasons to doubt this")
        parts += _listed(
            f"{doubt_in_words(doubt)} ({doubt.code}): {sentence(doubt.message)} {sentence(doubt.remedy)}"
            for doubt in content.doubts
        )
    if advice.settle:
        parts += [f"How to settle it{in_about(advice)}:", code_block(advice.settle)]
    if advice.alternatives:
        parts.append(f"### {advice.alternatives_title}")
        parts += _bullets(f"**{escape(title)}**: {escape(words)}" for title, _, words in content.alternatives)
    return parts


def figure_text(figure: Figure) -> str:
    """Return a figure with its title, its picture and its caption."""
    caption = figure.caption
    words = " ".join(part for part in (caption.text, figure.note) if part)
    return "\n\n".join(
        (
            f"### {escape(caption.title)}",
            f"![{escape(figure.alt)}]({figure.name}.svg)",
            f"{escape(words)} [Data]({figure.name}.csv)",
        )
    )


def table_text(table: ReportTable) -> str:
    """Return a table with its caption and a link to its CSV, or its words for no rows."""
    if not table.rows:
        return escape(table.empty)
    head = "| " + " | ".join(escape(column.title) for column in table.columns) + " |"
    rule = "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|"
    rows = ["| " + " | ".join(_entry(entry) for entry in row) + " |" for row in table.shown]
    words = " ".join(part for part in (table.caption, table.extent) if part)
    more = _bullets(_opened(row[0], lines) for row, lines in zip(table.shown, table.opened, strict=False))
    return "\n".join([f"{escape(words)} [CSV]({table.name}.csv)\n", head, rule, *rows, *(["", *more] if more else [])])


def _opened(first: Entry, lines: Iterable[More]) -> str:
    """Return what a row opens to as one item of a list; what is to be typed stands in code."""
    said = [f"{escape(line.name)}: {_said(line)}" for line in lines]
    return f"**{escape(first.text)}**: {'; '.join(said)}."


def _said(line: More) -> str:
    if line.code:
        return _inline_code(line.text)
    words = escape(line.text.rstrip("."))
    return f"[{words}]({line.href})" if line.href else words


def _inline_code(text: str) -> str:
    """Return `text` in a span of code, with more ticks around it than any in it has."""
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall(r"`+", text)), default=0))
    return f"{fence} {' '.join(text.split())} {fence}"


def _entry(entry: Entry) -> str:
    return " ".join(escape(part) for part in (entry.text, entry.detail) if part)


def _listed(lines: Iterable[str]) -> list[str]:
    return _bullets(escape(line) for line in lines)


def _bullets(lines: Iterable[str]) -> list[str]:
    text = "\n".join(f"- {line}" for line in lines)
    return [text] if text else []
