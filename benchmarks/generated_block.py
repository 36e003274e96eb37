"""Replaces what a benchmark has written into a page, between `<!-- NAME: begin ... -->` and `<!-- NAME: end -->`."""

from __future__ import annotations

import re
from pathlib import Path


def fill(page: Path, name: str, text: str) -> None:
    """Put `text` into the block of a page. Exits if the page has no such block."""
    pattern = re.compile(
        rf"(<!-- {re.escape(name)}: begin\b[^\n]*-->\n).*?(<!-- {re.escape(name)}: end -->)", re.DOTALL
    )
    filled, count = pattern.subn(lambda found: f"{found[1]}{text.strip()}\n{found[2]}", page.read_text("utf-8"))
    if count != 1:
        raise SystemExit(f"{page} has {count} blocks named {name}")
    page.write_text(filled, "utf-8")
