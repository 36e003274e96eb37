"""The report as Markdown, to be viewed on a Git hosting site: the same content as the page, with static pictures."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from accelsweep.records.run_record import doubt_description
from accelsweep.report.content import Content, MainDoubt, method_of
from accelsweep.report.figures.figure import Figure
from accelsweep.report.formatting import next_step, sentence
from accelsweep.report.table_model import Detail, ReportTable

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+!|~$&@])")


def escape(text: str) -> str:
    """Return `text` as Markdown that renders as exactly these characters, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _fence(text: str, least: int) -> str:
    """Return a fence of at least `least` backticks that is longer than any run of backticks in `text`."""
    longest = max((len(ticks) for ticks in re.findall(r"`+", text)), default=0)
    return "`" * max(least, longest + 1)


def code_block(text: str) -> str:
    """Return `text`, which may contain fences, in a fenced block."""
    fence = _fence(text, 3)
    return f"{fence}sh\n{text}\n{fence}"


def render_markdown(content: Content) -> str:
    """Return the whole `report.md`."""
    findings = content.findings
    parts = [f"# {escape(findings.sweep)}", *_first_screen(content)]
    if content.has_numbers:
        parts += ["## Figures", *(figure_text(figure) for figure in content.other_figures)]
        parts += _list(f"{skipped.caption.title}: not drawn, {skipped.reason}" for skipped in content.skipped)
    for table in content.shown_tables:
        figure = content.figure_of(table)
        parts += [f"## {table.title}", *([figure_text(figure)] if figure else []), table_text(table)]
        parts += _list(content.absent) if table.name == "settings" else []
    if findings.refusals:
        parts += ["## Refused comparisons", *_list(findings.refusals)]
    method = [f"{number}. {escape(line)}" for number, line in enumerate(method_of(findings), 1)]
    parts += ["## Method", "\n".join(method)]
    parts += [f"More in [docs/method.md]({content.method})."] if content.method else []
    parts += ["## How to reproduce", code_block(findings.command)]
    parts.append(f"Records: SHA-256 `{findings.records_sha256}`, plan revision {findings.revision}.")
    return "\n\n".join(parts) + "\n"


def _first_screen(content: Content) -> list[str]:
    advice = content.findings.recommendation
    parts = [f"**{escape(content.headline)}** ({escape(content.findings.certainty)})", escape(advice.detail)]
    parts += [f"{escape(next_step(advice))}:", code_block(advice.settle)] if advice.settle else []
    parts += [figure_text(content.first_figure)] if isinstance(content.first_figure, Figure) else []
    if content.tiles:
        parts.append(escape(content.tiles_title))
        rows = [[tile.name for tile in content.tiles], [f"{tile.value} {tile.detail}" for tile in content.tiles]]
        rows += [[tile.baseline for tile in content.tiles]] if any(tile.baseline for tile in content.tiles) else []
        head, *values = (f"| {' | '.join(map(escape, row))} |" for row in rows)
        parts.append("\n".join([head, f"|{' --- |' * len(content.tiles)}", *values]))
    parts += [_main_doubt(content.main_doubt)] if content.main_doubt else []
    parts.append(f"_{escape(' · '.join(content.provenance))}_")
    parts += ["## How sure this is", escape(" · ".join(content.scope))] if content.has_numbers else []
    if content.doubts:
        parts.append("### Reasons to doubt this")
        parts += _list(
            f"{doubt_description(doubt)} ({doubt.code}): {sentence(doubt.message)} {sentence(doubt.remedy)}"
            for doubt in content.doubts
        )
    if advice.alternatives:
        parts.append(f"### {advice.alternatives_title}")
        parts.append("\n".join(f"- **{escape(title)}**: {escape(text)}" for title, _, text in content.alternatives))
    return [part for part in parts if part]


def _main_doubt(doubt: MainDoubt) -> str:
    code = f" (`{doubt.code}`)" if doubt.code else ""
    remedy = f": {escape(doubt.remedy)}" if doubt.remedy else ""
    return f"**{escape(doubt.text)}**{code}{remedy}."


def figure_text(figure: Figure) -> str:
    """Return a figure as title, picture and caption."""
    title, caption = figure.caption.title, " ".join(filter(None, (figure.caption.text, figure.note)))
    picture = f"![{escape(figure.alt)}]({figure.name}.svg)"
    return f"### {escape(title)}\n\n{picture}\n\n{escape(caption)} [Data]({figure.name}.csv)"


def table_text(table: ReportTable) -> str:
    """Return a table with its caption, a link to its CSV and a list of details, or the sentence for an empty table."""
    if not table.rows:
        return escape(table.empty)
    summary, opening, closing = _list(table.summary), [], []
    if table.folded:
        opening, closing = [f"<details><summary>{html.escape(table.folded)}</summary>\n"], ["\n</details>"]
    lines = [
        *(f"{text}\n" for text in summary),
        *opening,
        f"{escape(' '.join(filter(None, (table.caption, table.extent))))} [CSV]({table.name}.csv)\n",
        "| " + " | ".join(escape(column.title) for column in table.columns) + " |",
        "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|",
    ]
    for row in table.visible_rows:
        entries = (" ".join(escape(part) for part in (entry.text, entry.detail) if part) for entry in row)
        lines.append("| " + " | ".join(entries) + " |")
    if table.details:
        lines.append("")
    for row, details in zip(table.visible_rows, table.details, strict=False):
        text = "; ".join(f"{escape(detail.name)}: {_detail(detail)}" for detail in details)
        lines.append(f"- **{escape(row[0].text)}**: {text}.")
    return "\n".join([*lines, *closing])


def _detail(detail: Detail) -> str:
    if detail.code:
        fence = _fence(detail.text, 1)
        return f"{fence} {' '.join(detail.text.split())} {fence}"
    text = escape(detail.text.rstrip("."))
    return f"[{text}]({detail.href})" if detail.href else text


def _list(lines: Iterable[str]) -> list[str]:
    """Return the escaped lines as a bulleted list, or nothing if there are none."""
    text = "\n".join(f"- {escape(line)}" for line in lines)
    return [text] if text else []
