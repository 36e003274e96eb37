"""A figure before it is drawn: a name, rows of data, and a way to draw them in a given palette."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from xml.sax.saxutils import escape  # nosec B406 # it writes, and parses nothing

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.report.captions import CAPTIONS, Caption

# Colours and type of the charts, light and dark. The page's style sheet uses the same values.

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Liberation Sans travels inside vl-convert, so that static pictures measure their text alike on every machine."""


@dataclass(frozen=True)
class Palette:
    """One colour scheme. `series` tells lines apart, `ramp` runs from the page's background to full strength.

    `on_ramp` are the text colours on the ramp's beginning and end. `ramp_turn` is the share of the ramp at which the
    second becomes the more legible one.
    """

    name: str
    page: str
    ink: str
    muted: str
    line: str
    band: str
    accent: str
    faster: str
    slower: str
    undecided: str
    series: tuple[str, ...]
    ramp: tuple[str, ...]
    on_ramp: tuple[str, str]
    ramp_turn: float


LIGHT = Palette(
    name="light",
    page="#ffffff",
    ink="#16202c",
    muted="#566273",
    line="#e1e5ea",
    band="#eef1f5",
    accent="#1d5fc4",
    faster="#1d5fc4",
    slower="#c2410c",
    undecided="#7c56b3",
    series=("#1d5fc4", "#c2410c", "#0f7b6c", "#7c56b3", "#8a6100", "#b0266e", "#4a5a6a", "#2f7d32"),
    ramp=("#e6eefb", "#9dbff0", "#4a86dc", "#123f8c"),
    on_ramp=("#0b1118", "#ffffff"),
    ramp_turn=0.75,
)

DARK = Palette(
    name="dark",
    page="#12171e",
    ink="#e8ecf1",
    muted="#9aa6b5",
    line="#2a323d",
    band="#1d2530",
    accent="#7fb0ff",
    faster="#7fb0ff",
    slower="#ff9466",
    undecided="#c3a3f5",
    series=("#7fb0ff", "#ff9466", "#52c7b4", "#c3a3f5", "#e0b64f", "#f58fbd", "#a9b6c6", "#86cf89"),
    ramp=("#1b2c47", "#28508c", "#4d8ae6", "#b5d2ff"),
    on_ramp=("#e8ecf1", "#0b1118"),
    ramp_turn=0.55,
)

SHAPES: dict[Verdict, str] = {
    Verdict.faster: "triangle-right",
    Verdict.slower: "triangle-left",
    Verdict.larger: "triangle-right",
    Verdict.smaller: "triangle-left",
    Verdict.same: "square",
    Verdict.undecided: "diamond",
    Verdict.not_yet: "diamond",
    Verdict.disturbed: "cross",
    Verdict.baseline: "circle",
    Verdict.refused: "cross",
    Verdict.not_measured: "cross",
}
"""The shape of a verdict's mark: the triangles point in the direction of the difference."""


def verdict_colours(palette: Palette) -> dict[Verdict, str]:
    """Return the colour of each verdict's mark."""
    return {
        Verdict.faster: palette.faster,
        Verdict.slower: palette.slower,
        Verdict.larger: palette.faster,
        Verdict.smaller: palette.slower,
        Verdict.same: palette.muted,
        Verdict.undecided: palette.undecided,
        Verdict.not_yet: palette.undecided,
        Verdict.disturbed: palette.muted,
        Verdict.baseline: palette.ink,
        Verdict.refused: palette.muted,
        Verdict.not_measured: palette.muted,
    }


def theme(palette: Palette) -> dict[str, Any]:
    """Return Vega-Lite's config for a palette: thin lines, one type size, no frame."""
    return {
        "background": palette.page,
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "range": {"category": list(palette.series), "ramp": list(palette.ramp), "heatmap": list(palette.ramp)},
        "axis": _axis(palette),
        "legend": _legend(palette),
        "text": {"color": palette.ink, "fontSize": 12},
        "rule": {"color": palette.muted},
        "line": {"strokeWidth": 2},
        "point": {"size": 80, "filled": True, "opacity": 1},
    }


def _axis(palette: Palette) -> dict[str, Any]:
    return {
        **_words(palette),
        "titleFontWeight": "normal",
        "titlePadding": 10,
        "labelPadding": 6,
        "labelLimit": 340,
        "labelOverlap": "greedy",
        "labelSeparation": 8,
        "gridColor": palette.line,
        "domain": False,
        "tickColor": palette.line,
        "ticks": False,
    }


def _legend(palette: Palette) -> dict[str, Any]:
    return {
        **_words(palette),
        "orient": "top",
        "title": None,
        "labelColor": palette.ink,
        "labelLimit": 420,
        "symbolSize": 90,
        "columnPadding": 18,
        "padding": 0,
        "offset": 14,
    }


def _words(palette: Palette) -> dict[str, Any]:
    return {"labelColor": palette.muted, "titleColor": palette.muted, "labelFontSize": 12, "titleFontSize": 12}


ROWS = alt.NamedData(name="rows")
"""The data that every chart draws; the rows stand beside the specification, once for both palettes."""

STATIC_WIDTH = 720
"""Width of a static picture, in pixels; the interactive chart takes the width of its container."""

ROW_PIXELS = 28
"""Height of one row of a chart that lists cells; its `usermeta` counts the rows, so that a phone can give them more."""

MOST_CELLS = 60
"""A chart with more rows than this is no picture any more; the rest stands in the CSV and the table."""

SI_AXIS = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
"""A vertical axis of numbers with SI prefixes; zero stands without one."""

DataRow = Mapping[str, Any]

Chart: TypeAlias = alt.LayerChart | alt.FacetChart
"""The type that altair gives to layers; nothing here is faceted, but its types allow for it."""


def have(rows: Sequence[DataRow], key: str) -> bool:
    """Return whether any row has this value (not None, not false): a layer without any mark is left out."""
    return any(row[key] is not None and row[key] is not False for row in rows)


@dataclass(frozen=True)
class Figure:
    """A picture of `rows`. `columns` are those that go into its CSV, in order; the others are words for the chart.

    If rows have a value `shown`, only those in which it is true are drawn; the CSV holds them all. `alt` is one
    sentence for people who cannot see it. `note` lists the parts that this picture leaves out (empty if nothing).
    """

    name: str
    alt: str
    rows: Sequence[DataRow]
    columns: Sequence[str]
    draw: Callable[[Palette], Chart]
    note: str = ""

    @property
    def caption(self) -> Caption:
        """Title and explanation, from `report/captions.py`."""
        return CAPTIONS[self.name]

    @property
    def drawn(self) -> list[DataRow]:
        """The drawn rows: the chart needs no others."""
        return [row for row in self.rows if row.get("shown", True)]

    @cached_property
    def specifications(self) -> dict[str, dict[str, Any]]:
        """Vega-Lite specifications by palette name, without rows and width. Tests validate them, reports need not."""
        return {
            palette.name: {
                **self.draw(palette).to_dict(validate=False),
                "description": self.alt,  # the drawn picture keeps it where scripts replace the page's own words
                "config": theme(palette),
            }
            for palette in (LIGHT, DARK)
        }

    def fluid_specifications(self) -> dict[str, dict[str, Any]]:
        """Return the specifications, by palette name, of a chart that takes the width of its container."""
        fluid = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        return {name: {**specification, **fluid} for name, specification in self.specifications.items()}

    def static_specification(self, palette: Palette = LIGHT) -> dict[str, Any]:
        """Return the specification with its rows inside and a fixed width, for a picture that stands alone."""
        chart = self.specifications[palette.name]
        return {**chart, "width": STATIC_WIDTH, "datasets": {**chart.get("datasets", {}), "rows": self.drawn}}


@dataclass(frozen=True)
class Skipped:
    """A figure that cannot be drawn from these data, and why, in one line."""

    name: str
    reason: str

    @property
    def caption(self) -> Caption:
        """Title and explanation, from `report/captions.py`."""
        return CAPTIONS[self.name]


# The picture in place of a figure that cannot be drawn: its title and the reason, so that no figure is just missing.

_LINE_PIXELS = 20

_LETTERS = 95
"""Characters of 13 pixels that surely fit the width."""


def absent_picture(skipped: Skipped) -> str:
    """Return an SVG that says which figure is not drawn, and why."""
    lines = textwrap.wrap(f"Not drawn: {skipped.reason}.", _LETTERS, break_long_words=True)
    height = 44 + _LINE_PIXELS * len(lines)
    words = "".join(
        f'<text x="12" y="{50 + _LINE_PIXELS * number}" font-size="13" fill="{LIGHT.muted}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{STATIC_WIDTH}" height="{height}" '
        f'viewBox="0 0 {STATIC_WIDTH} {height}" font-family="{FONT}">'
        f'<rect width="{STATIC_WIDTH}" height="{height}" fill="{LIGHT.band}"/>'
        f'<text x="12" y="26" font-size="15" fill="{LIGHT.ink}">{escape(skipped.caption.title)}</text>{words}</svg>\n'
    )
