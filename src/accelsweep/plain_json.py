"""Plain JSON: canonical form, strict parsing, digests, lookup of dotted keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of `value`: sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def parse_json(text: str) -> Any:
    """Parse JSON text strictly. Raises ValueError, including for NaN, infinities and excessively deep nesting."""
    try:
        return json.loads(text, parse_constant=_reject_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large a number")
    return number


def sha256_text(text: str) -> str:
    """Return the SHA-256 of `text` in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


MISSING: Final = object()
"""Returned by `look_up` for a missing key, because None is a valid value."""


def look_up(tree: Any, key: str) -> Any:
    """Return the value at the dotted `key` of a nested mapping, or MISSING."""
    for part in key.split("."):
        if not (isinstance(tree, dict) or isinstance(tree, Mapping)) or part not in tree:  # noqa: SIM101 - dict is faster
            return MISSING
        tree = tree[part]
    return tree


NO_OTHER_FIELDS = {"extra": "forbid"}
"""`__pydantic_config__` of dataclasses in documents: rejects undeclared fields, which come from a later version."""
