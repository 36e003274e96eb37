"""Colours and type of the charts, light and dark. The page's style sheet uses the same values.

Verdicts are told apart by shape as well as colour. The hues (blue, vermilion, violet, grey) stay apart for colour-blind
readers. They have at least 3:1 contrast against their background.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelsweep.core.findings.numbers import Verdict

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
