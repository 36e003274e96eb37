"""Markdown tables whose cells may hold anything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return `text` as it may stand in a cell of a Markdown table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def plain(text: str) -> str:
    """Return `text` for a cell, with everything that Markdown or HTML would read as markup made harmless."""
    return re.sub(r"([\\`*_{}\[\]<>#])", r"\\\1", cell(text).replace("\\|", "|")).replace("|", "\\|")


def code(text: str) -> str:
    """Return `text` as code in a cell; nothing for no text."""
    return f"`{cell(text)}`" if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of cells that are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
