"""Markdown tables whose cells may contain any text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return `text` escaped for a cell in a Markdown table."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def plain(text: str) -> str:
    """Return `text` for a cell, with all Markdown and HTML markup escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#])", r"\\\1", cell(text).replace("\\|", "|")).replace("|", "\\|")


def code(text: str) -> str:
    """Return `text` formatted as code for a cell, or an empty string if there is no text."""
    return f"`{cell(text)}`" if text else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; its cells must already be Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
