"""Names of sweeps, blocks and runs that may name a file: plans and commands come from elsewhere, too."""

from __future__ import annotations

import re
from pathlib import PurePath

from accelsweep.base.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def check_sweep_name(name: str) -> str:
    """Return `name` if it can name a folder, a Snakemake target and an MLflow experiment; raise InputError if not."""
    if not _NAME.fullmatch(name) or ".." in name:
        cleaned = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-.")[:80] or "my-sweep"
        raise InputError(
            f"the sweep's name {name!r} is not usable: letters, digits, '.', '_' and '-' only, at most 80, "
            f"beginning with a letter or digit, without '..'. Try --name {cleaned}"
        )
    return name


def inside(name: str) -> str:
    """Return the name of a block or run if it can name a file in its folder; raise InputError if a path could leave it.

    Plans come from elsewhere, too.
    """
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InputError(f"the plan holds the name {name!r}, which no block or run can have; the plan was altered")
    return name


def sweep_name_in(text: str) -> str:
    """Return the sweep's name, given NAME or the path of its folder, sweeps/NAME."""
    return PurePath(text).name
