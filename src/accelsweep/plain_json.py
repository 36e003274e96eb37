"""Plain JSON: canonical form, strict parsing, digests, lookup of dotted keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_json(value: Any) -> str:
    """Return the canonical JSON of `value`: sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    return _CANONICAL.encode(value)


class SharedJson:
    """Returns the canonical JSON of mappings that share values, such as a grid's configs; each value is written once.

    `without` is applied to each item of a mapping first, and may remove it. Values must not be modified.
    """

    def __init__(self, without: Callable[[dict[str, Any]], Mapping[str, Any]] = dict) -> None:
        self._without = without
        self._items: dict[tuple[str, int], tuple[Any, str]] = {}  # keeps the values, so that no ID is used again

    def __call__(self, mapping: Mapping[str, Any]) -> str:
        """Return what `canonical_json` returns for the mapping without what is removed."""
        items = []
        for key in sorted(mapping):
            value = mapping[key]
            if (known := self._items.get((key, id(value)))) is None:
                known = self._items[key, id(value)] = value, canonical_json(self._without({key: value}))[1:-1]
            items.append(known[1])
        return f"{{{','.join(filter(None, items))}}}"


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
