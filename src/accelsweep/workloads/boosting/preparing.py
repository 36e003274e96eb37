"""The key `model.prepare`: whether rows are brought into a library's own form once, or in each fit."""

from __future__ import annotations

from typing import Literal

from accelsweep.errors import InputError, nearest

Preparing = Literal["apart", "in_fit"]
"""`apart`: once, before the window, and timed by itself. `in_fit`: in each fit, within its time."""


def prepares_apart(prepare: str) -> bool:
    """Return whether rows are prepared apart. Raises InputError for another word."""
    if prepare not in ("apart", "in_fit"):
        hint = nearest(prepare, ("apart", "in_fit"))
        raise InputError(f"model.prepare={prepare}: must be apart or in_fit{hint}")
    return prepare == "apart"
