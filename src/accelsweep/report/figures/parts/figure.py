"""A figure before it is drawn: a name, rows of data, and a way to draw them in a given palette."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import altair as alt

from accelsweep.report.captions import CAPTIONS, Caption
from accelsweep.report.figures.parts.theme import DARK, LIGHT, Palette, theme

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
