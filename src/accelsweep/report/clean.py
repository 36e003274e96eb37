"""Text from outside (names, values, reasons, log lines) made printable, once, before anything is formatted.

Escaping is the renderers' work. This module replaces characters that no renderer can carry. Control characters and lone
surrogates make a page or an SVG invalid. Marks that reverse the direction of the text around them make a page differ
from its source.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from accelsweep.core.findings.findings import Findings

_KEPT = frozenset("\n\t")
_REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNPRINTABLE = frozenset({"Cc", "Cs"})


def printable(text: str) -> str:
    """Return `text` with every character that cannot or must not be printed replaced by U+FFFD."""
    if text.isprintable() and _REVERSING.isdisjoint(text):
        return text
    return "".join("\ufffd" if _refused(character) else character for character in text)


def printable_findings(findings: Findings) -> Findings:
    """Return the same findings with every text printable; numbers are untouched."""
    return Findings.model_validate(clean_text(findings.model_dump()))


def _refused(character: str) -> bool:
    if character in _KEPT:
        return False
    return (
        character in _REVERSING or unicodedata.category(character) in _UNPRINTABLE or ord(character) in (0xFFFE, 0xFFFF)
    )


def clean_text(value: Any) -> Any:
    """Return plain data with every text in it printable."""
    if isinstance(value, str):
        # An outcome or a verdict is a string too; it is known to be printable and must keep its type.
        return printable(value) if type(value) is str else value
    if isinstance(value, dict):
        return {clean_text(key): clean_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_text(item) for item in value]
    return value
