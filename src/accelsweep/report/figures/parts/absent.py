"""The picture in place of a figure that cannot be drawn: its title and the reason, so that no figure is just missing.

Snakemake expects every figure of `captions.CAPTIONS`, so its report shows this picture instead.
"""

from __future__ import annotations

import textwrap
from xml.sax.saxutils import escape  # nosec B406 # it writes, and parses nothing

from accelsweep.report.figures.parts.figure import STATIC_WIDTH, Skipped
from accelsweep.report.figures.parts.theme import FONT, LIGHT

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
