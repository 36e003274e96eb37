"""Text made safe for a terminal, which obeys control characters: configs, labels and reasons are written by others."""

from __future__ import annotations

import re

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and newline, marks that turn the direction of writing, and halves of characters."""


def escaped(text: str) -> str:
    """Return `text` with every character that a terminal obeys, or cannot show, in the escape of a Python string."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
