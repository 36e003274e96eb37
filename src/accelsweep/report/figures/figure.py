"""A figure before it is drawn: its data rows, and a function that draws them in a given palette."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias
from xml.sax.saxutils import escape  # nosec B406 # escapes output, parses nothing

import altair as alt

from accelsweep.records.estimates import Verdict
from accelsweep.report.captions import CAPTIONS, Caption

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""vl-convert bundles Liberation Sans, so text in static pictures has the same size on every machine."""


@dataclass(frozen=True)
class Palette:
    """A colour scheme; the page's style sheet uses the same values.

    `series` distinguishes lines. `ramp` ranges from nearly the page's background colour to full strength. `on_ramp`
    contains the text colours for the two ends of the ramp; `ramp_turn` is the position on the ramp, between 0 and 1,
    beyond which the second colour is more legible.
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

VERDICT_MARKS: dict[Verdict, tuple[str, str]] = {
    Verdict.faster: ("triangle-right", "faster"),
    Verdict.slower: ("triangle-left", "slower"),
    Verdict.larger: ("triangle-right", "faster"),
    Verdict.smaller: ("triangle-left", "slower"),
    Verdict.same: ("square", "muted"),
    Verdict.undecided: ("diamond", "undecided"),
    Verdict.not_yet: ("diamond", "undecided"),
    Verdict.disturbed: ("cross", "muted"),
    Verdict.baseline: ("circle", "ink"),
    Verdict.refused: ("cross", "muted"),
    Verdict.not_measured: ("cross", "muted"),
}
"""The shape and palette colour of each verdict's mark; triangles point in the direction of the difference."""


def theme(palette: Palette) -> dict[str, Any]:
    """Return the Vega-Lite config for a palette: thin lines, a single font size, no frame."""
    text = {"labelColor": palette.muted, "titleColor": palette.muted, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": palette.page,
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "range": {"category": list(palette.series), "ramp": list(palette.ramp), "heatmap": list(palette.ramp)},
        "axis": {
            **text,
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
        },
        "legend": {
            **text,
            "orient": "top",
            "title": None,
            "labelColor": palette.ink,
            "labelLimit": 420,
            "symbolSize": 90,
            "columnPadding": 18,
            "padding": 0,
            "offset": 14,
        },
        "text": {"color": palette.ink, "fontSize": 12},
        "rule": {"color": palette.muted},
        "line": {"strokeWidth": 2},
        "point": {"size": 80, "filled": True, "opacity": 1},
    }


ROWS = alt.NamedData(name="rows")
"""Chart data, kept separate from the specification so that both palettes share one copy."""

STATIC_WIDTH = 720
"""Width of a static picture, in pixels; an interactive chart fills the width of its container."""

ROW_PIXELS = 28
"""Row height in charts that list settings; `usermeta` contains the row count, so that rows can be taller on phones."""

MAX_ROWS = 60
"""Maximum number of rows in a chart that lists settings; the rest are in the CSV and the table."""

MAX_SERIES = 8
"""Maximum number of lines in a chart, which is the number of colours in a palette."""

SI_AXIS = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
"""A vertical axis with SI prefixes, except at zero."""

DataRow = Mapping[str, Any]

Chart: TypeAlias = alt.LayerChart | alt.FacetChart
"""The return type of `altair.layer`; no chart here is faceted."""


def has_values(rows: Sequence[DataRow], key: str) -> bool:
    """Return whether `key` is set (neither None nor False) in any row; if not, the layer that draws it is omitted."""
    return any(row[key] is not None and row[key] is not False for row in rows)


@dataclass(frozen=True)
class Figure:
    """A figure that shows `rows`.

    Its CSV contains `columns`, in this order; all other values are used by the chart only. Rows whose `shown` is false
    appear only in the CSV. `alt` is one sentence for people who cannot see the picture. `note` describes what the
    picture omits; it is empty if nothing is omitted.
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
        """The rows that appear in the chart."""
        return [row for row in self.rows if row.get("shown", True)]

    @cached_property
    def specifications(self) -> dict[str, dict[str, Any]]:
        """Vega-Lite specifications keyed by palette name, without rows or width. They are validated in tests only."""
        return {
            palette.name: {
                **self.draw(palette).to_dict(validate=False),
                "description": self.alt,  # Vega replaces the page's own aria-label with this
                "config": theme(palette),
            }
            for palette in (LIGHT, DARK)
        }

    def fluid_specifications(self) -> dict[str, dict[str, Any]]:
        """Return the specifications, keyed by palette name, of a chart that fills its container's width."""
        fluid = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        return {name: {**specification, **fluid} for name, specification in self.specifications.items()}

    def static_specification(self, palette: Palette = LIGHT) -> dict[str, Any]:
        """Return the specification of a standalone picture, including its rows, with a fixed width."""
        chart = self.specifications[palette.name]
        return {**chart, "width": STATIC_WIDTH, "datasets": {**chart.get("datasets", {}), "rows": self.drawn}}


@dataclass(frozen=True)
class Skipped:
    """A figure that cannot be drawn from this data, with a one-line reason."""

    name: str
    reason: str

    @property
    def caption(self) -> Caption:
        """Title and explanation, from `report/captions.py`."""
        return CAPTIONS[self.name]


def placeholder_svg(skipped: Skipped) -> str:
    """Return an SVG with the title of the figure that was not drawn, and the reason."""
    lines = textwrap.wrap(f"Not drawn: {skipped.reason}.", 95, break_long_words=True)  # 95 characters fit at 13 px
    height = 44 + 20 * len(lines)
    text = "".join(
        f'<text x="12" y="{50 + 20 * number}" font-size="13" fill="{LIGHT.muted}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{STATIC_WIDTH}" height="{height}" '
        f'viewBox="0 0 {STATIC_WIDTH} {height}" font-family="{FONT}">'
        f'<rect width="{STATIC_WIDTH}" height="{height}" fill="{LIGHT.band}"/>'
        f'<text x="12" y="26" font-size="15" fill="{LIGHT.ink}">{escape(skipped.caption.title)}</text>{text}</svg>\n'
    )
