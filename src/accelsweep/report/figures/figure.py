"""What a figure is, before anybody draws it: a name, rows of data, and a way to draw them in a given palette."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import altair as alt

from accelsweep.report.captions import CAPTIONS, Caption
from accelsweep.report.figures.theme import Palette, theme

ROWS = alt.NamedData(name="rows")
"""The data that every chart draws; the rows stand beside the specification, once for both palettes."""

STATIC_WIDTH = 720
"""Width of a static picture, in pixels; the interactive chart takes the width of its container."""

ROW_PIXELS = 28
"""Height of one row of a chart that lists cells; its `usermeta` counts the rows, so that a phone can give them more."""

SI_AXIS = alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)
"""A vertical axis of numbers with SI prefixes; zero stands without one."""

Row = Mapping[str, Any]
Chart: TypeAlias = alt.LayerChart | alt.FacetChart
"""What altair makes of layers; nothing here is faceted, but its types allow for it."""


@dataclass(frozen=True)
class Figure:
    """A picture of `rows`. `columns` are those that go into its CSV, in order; the others are words for the chart.

    `alt` is one sentence for people who cannot see it, `note` what this picture leaves out (empty if nothing).
    """

    name: str
    alt: str
    rows: Sequence[Row]
    columns: Sequence[str]
    draw: Callable[[Palette], Chart]
    note: str = ""

    @property
    def caption(self) -> Caption:
        """Title and explanation, from `report/captions.py`."""
        return CAPTIONS[self.name]

    def specification(self, palette: Palette, width: int | str) -> dict[str, Any]:
        """Return the Vega-Lite specification without its rows; `width` is in pixels or `"container"`."""
        chart: dict[str, Any] = self.draw(palette).to_dict()
        return {
            **chart,
            "width": width,
            "autosize": {"type": "fit-x" if width == "container" else "pad", "contains": "padding"},
            "config": theme(palette),
        }

    def static_specification(self, palette: Palette) -> dict[str, Any]:
        """Return the specification with its rows inside and a fixed width, for a picture that stands alone."""
        chart = self.specification(palette, STATIC_WIDTH)
        return {**chart, "datasets": {**chart.get("datasets", {}), "rows": list(self.rows)}}


@dataclass(frozen=True)
class Skipped:
    """A figure that cannot be drawn from these data, and why, in one line."""

    name: str
    reason: str

    @property
    def caption(self) -> Caption:
        """Title and explanation, from `report/captions.py`."""
        return CAPTIONS[self.name]
