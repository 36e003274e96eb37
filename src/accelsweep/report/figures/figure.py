"""A figure before it is drawn: its data rows, and a function that draws them in a given palette."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import altair as alt
from altair.utils.schemapi import debug_mode

from accelsweep.records.estimates import Verdict
from accelsweep.report.captions import CAPTIONS, Caption

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""vl-convert bundles Liberation Sans, so text in static pictures has the same size on every machine."""


@dataclass(frozen=True)
class Palette:
    """A colour scheme; the page's style sheet uses the same values.

    `faster`, `slower`, `undecided` and `doubt` are verdicts, and nothing else has these colours. `series` distinguishes
    lines, bars and points; its colours differ in lightness as well as in hue, so that they can be told apart in print
    and by readers with any kind of colour blindness. `ramp` ranges from nearly the page's background colour to full
    strength. `on_ramp` contains the text colours for the two ends of the ramp; `ramp_turn` is the position on the ramp,
    between 0 and 1, beyond which the second colour is more legible.
    """

    name: str
    page: str
    ink: str
    muted: str
    line: str
    band: str
    faster: str
    slower: str
    undecided: str
    doubt: str
    series: tuple[str, ...]
    ramp: tuple[str, ...]
    on_ramp: tuple[str, str]
    ramp_turn: float

    def text_on(self, colour: str) -> str:
        """Return the text colour that is most legible on `colour`."""
        return max((self.ink, self.page), key=lambda text: contrast(text, colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours such as `#16202c`, from 1 to 21 (WCAG 2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


LIGHT = Palette(
    name="light",
    page="#ffffff",
    ink="#16202c",
    muted="#566273",
    line="#e1e5ea",
    band="#eef1f5",
    faster="#1d5fc4",
    slower="#c2410c",
    undecided="#7c56b3",
    doubt="#8a5a00",
    series=("#35909d", "#a51c87", "#a49615", "#313e06", "#e34171", "#5e2856", "#287606", "#cf68e0"),
    ramp=("#e4f1f2", "#9fd0d4", "#4a9aa3", "#0f4f59"),
    on_ramp=("#0b1118", "#ffffff"),
    ramp_turn=0.77,
)

DARK = Palette(
    name="dark",
    page="#12171e",
    ink="#e8ecf1",
    muted="#9aa6b5",
    line="#2a323d",
    band="#1d2530",
    faster="#7fb0ff",
    slower="#ff9466",
    undecided="#c3a3f5",
    doubt="#f0c46a",
    series=("#2e949e", "#f8b9cd", "#ae9d2d", "#87e35e", "#d83b5f", "#9c39a8", "#27740f", "#de68da"),
    ramp=("#16333a", "#1f5f69", "#3a9aa6", "#b6e6ea"),
    on_ramp=("#e8ecf1", "#0b1118"),
    ramp_turn=0.51,
)

SERIES_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down")
"""The shapes of the points of series, in the order of their colours; they repeat after the last one."""

VERDICT_MARKS: dict[Verdict, tuple[str, str]] = {
    Verdict.faster: ("triangle-right", "faster"),
    Verdict.slower: ("triangle-left", "slower"),
    Verdict.larger: ("triangle-right", "faster"),
    Verdict.smaller: ("triangle-left", "slower"),
    Verdict.same: ("square", "muted"),
    Verdict.undecided: ("diamond", "undecided"),
    Verdict.not_yet: ("diamond", "undecided"),
    Verdict.disturbed: ("cross", "doubt"),
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


class Layer(alt.Chart):
    """A chart of the rows, unless other `data` is given, for `altair.layer`; once passed, it must not be changed.

    `altair.layer` copies each layer a dozen times; copies of this class share their parts, which saves most of the time
    that a report's charts take.
    """

    def __init__(self, data: alt.NamedData | alt.InlineData = ROWS, **options: Any) -> None:
        super().__init__(data, **options)

    def copy(self, deep: bool | Iterable[Any] = True, ignore: list[str] | None = None) -> Self:
        """Return a copy that has its own top level, and its own copies of the attributes listed in `deep`."""
        return super().copy(deep is not True and deep, ignore)


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
    def light(self) -> dict[str, Any]:
        """The Vega-Lite specification in light colours, without rows or width."""
        return self._specification(LIGHT)

    @cached_property
    def dark(self) -> dict[str, Any]:
        """The Vega-Lite specification in dark colours, without rows or width; only pages need it."""
        return self._specification(DARK)

    def _specification(self, palette: Palette) -> dict[str, Any]:
        """Draw the figure. Specifications are validated in tests only, because that doubles the time."""
        with debug_mode(False):
            return {
                **self.draw(palette).to_dict(validate=False),
                "description": self.alt,  # Vega replaces the page's own aria-label with this
                "config": theme(palette),
            }

    def fluid_specifications(self) -> dict[str, dict[str, Any]]:
        """Return the specifications, keyed by palette name, of a chart that fills its container's width."""
        fluid = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
        return {
            name: {**specification, **fluid} for name, specification in (("light", self.light), ("dark", self.dark))
        }

    def static_specification(self, palette: Palette = LIGHT) -> dict[str, Any]:
        """Return the specification of a standalone picture, including its rows, with a fixed width."""
        chart = self.light if palette is LIGHT else self.dark
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
