"""Decisions before any device is touched: compose, expand, refuse, cut into blocks, estimate. No torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any


class _CallableRoom(ModuleType):
    """The room, which `accelsweep.plan([...])` calls: its name is also that of a command, and so a public word."""

    def __call__(
        self,
        overrides: Sequence[str] = (),
        *,
        name: str | None = None,
        add_repeats: int = 0,
        profile: str | None = None,
        home: Path | str | None = None,
    ) -> Any:
        """Preview a sweep as `accelsweep plan` does; see `accelsweep.api.plan`."""
        driving = import_module("accelsweep.api")  # stands above this room, so no import at its head
        return driving.plan(overrides, name=name, add_repeats=add_repeats, profile=profile, home=home)


sys.modules[__name__].__class__ = _CallableRoom
