"""The summary card: a sweep's answer in one picture, for a slide, an issue or a chat.

It shows the headline, the forest plot, the main doubt and where the numbers come from. Without a forest plot, the
numbers of the first screen take its place.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import escape  # nosec B406 # escapes output, parses nothing

import vl_convert

from accelsweep.records.findings import Certainty
from accelsweep.report.content import Content
from accelsweep.report.figures.figure import FONT, LIGHT, Figure
from accelsweep.report.formatting import count
from accelsweep.report.html_page import vega_lite_version

SUMMARY_SVG, SUMMARY_PNG = "summary.svg", "summary.png"

WIDTH = 1200
"""The card's width in pixels. Its height follows from its content; the PNG has twice as many pixels each way."""

_MARGIN = 56
_INNER = WIDTH - 2 * _MARGIN

_CHART_WIDTH = 800
"""The width at which the forest plot is drawn, in pixels. It is then enlarged to that of the card, text included."""

_LETTER = 0.52
"""The mean width of a letter, as a share of the font's size."""

_CHIPS = {Certainty.sure: LIGHT.faster, Certainty.disturbed: LIGHT.doubt}
"""The colours of certainties, as on the page; all others have that of `undecided`."""


@dataclass
class _Card:
    """The elements so far, and the vertical position of the next one, in pixels."""

    elements: list[str] = field(default_factory=list)
    y: float = 44.0

    def write(
        self,
        text: str,
        size: int,
        colour: str,
        *,
        bold: bool = False,
        most: int = 3,
        gap: float = 0.0,
        x: float = _MARGIN,
        width: float = _INNER,
    ) -> None:
        """Add `text` in at most `most` lines of this width, `gap` pixels below what precedes it."""
        letters = max(1, int(width / (size * _LETTER * (1.07 if bold else 1.0))))
        self.y += gap
        for line in textwrap.wrap(text, letters, max_lines=most, placeholder=" …"):
            self.y += size
            self.elements.append(_text(line, x, self.y, size, colour, bold=bold))
            self.y += 0.32 * size

    def draw(self, figure: Figure) -> None:
        """Add the lines of a forest plot that are on the page's first screen."""
        specification = figure.static_specification()
        rows = [row for row in figure.drawn if row["first"]]
        step = specification["usermeta"]["step"]
        specification |= {
            "width": _CHART_WIDTH,
            "height": step * len({row["key"] for row in rows}),
            "autosize": {"type": "fit-x", "contains": "padding"},
            "datasets": {**specification["datasets"], "rows": rows},
        }
        svg = str(vl_convert.vegalite_to_svg(specification, vega_lite_version()))
        opening, _, rest = svg.partition(">")
        width, height = (float(found) for found in re.findall(r' (?:width|height)="([\d.]+)"', opening))
        scale = _INNER / width
        self.y += 18
        place = f'x="{_MARGIN}" y="{self.y:.0f}" width="{_INNER}" height="{height * scale:.0f}"'
        self.elements.append(re.sub(r' width="[\d.]+" height="[\d.]+"', f" {place}", opening, count=1) + ">" + rest)
        self.y += height * scale

    def close(self, title: str, description: str) -> str:
        """Return the card as SVG."""
        height = round(self.y + 40)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="{FONT}" role="img">'
            f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
            f'<rect width="{WIDTH}" height="{height}" fill="{LIGHT.page}"/>'
            f'<rect width="{WIDTH}" height="8" fill="{LIGHT.ink}"/>{"".join(self.elements)}</svg>\n'
        )


def render_summary(content: Content) -> dict[str, str | bytes]:
    """Return the card as SVG and as PNG, keyed by the files' names."""
    svg = summary_svg(content)
    return {SUMMARY_SVG: svg, SUMMARY_PNG: vl_convert.svg_to_png(svg, scale=2)}


def summary_svg(content: Content) -> str:
    """Return the card as SVG."""
    findings, figure, card = content.findings, content.first_figure, _Card()
    advice = findings.recommendation
    card.elements += _chip(findings.certainty, _CHIPS.get(advice.certainty, LIGHT.undecided))
    card.write(f"accelsweep · {findings.sweep}", 18, LIGHT.muted, most=1, width=_INNER - 200)
    card.write(content.headline, 38, LIGHT.ink, bold=True, gap=8)
    card.write(advice.detail, 19, LIGHT.ink, gap=8)
    if isinstance(figure, Figure):
        card.draw(figure)
        card.write(" ".join(_omitted(figure)), 15, LIGHT.muted, gap=4)
    elif content.tiles:
        _tiles(card, content)
    if content.main_doubt:
        card.write(f"{content.main_doubt.text}.", 17, LIGHT.doubt, bold=True, gap=14)
    card.y += 16
    card.elements.append(f'<rect x="{_MARGIN}" y="{card.y:.0f}" width="{_INNER}" height="1" fill="{LIGHT.line}"/>')
    card.write(" · ".join(content.provenance), 15, LIGHT.muted, gap=14)
    card.write(f"records SHA-256 {findings.records_sha256}, plan revision {findings.revision}", 15, LIGHT.muted, gap=2)
    return card.close(content.headline, figure.alt if isinstance(figure, Figure) else advice.detail)


def _chip(text: str, colour: str) -> Iterator[str]:
    width = 30 + 18 * _LETTER * len(text)
    left = WIDTH - _MARGIN - width
    yield (
        f'<rect x="{left:.0f}" y="40" width="{width:.0f}" height="30" rx="15" fill="none" stroke="{colour}" '
        'stroke-width="2"/>'
    )
    yield _text(text, left + width / 2, 61, 18, colour, bold=True, anchor="middle")


def _text(text: str, x: float, y: float, size: int, colour: str, *, bold: bool, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(text)}</text>"
    )


def _tiles(card: _Card, content: Content) -> None:
    """Add the tiles of the first screen, side by side."""
    width = _INNER / len(content.tiles)
    top = bottom = card.y + 24
    for place, tile in enumerate(content.tiles):
        card.y = top
        x = _MARGIN + place * width
        card.write(tile.name, 16, LIGHT.muted, most=1, x=x, width=width - 24)
        card.write(tile.value, 26, LIGHT.ink, bold=True, most=2, gap=6, x=x, width=width - 24)
        card.write(tile.detail, 15, LIGHT.muted, gap=6, x=x, width=width - 24)
        bottom = max(bottom, card.y)
    card.y = bottom


def _omitted(figure: Figure) -> Iterable[str]:
    """Yield a sentence if the page's first screen does not show every setting of the forest plot."""
    shown = [row["first"] for row in figure.rows if row["kind"] == "setting"]
    if not all(shown):
        yield f"{sum(shown)} of {count(len(shown), 'setting')}: the fastest, and the baseline."
