"""`accelsweep plan`: a sweep before it is measured, and its config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.base.errors import InputError
from accelsweep.commands.planning.made import made_plan, table_of
from accelsweep.commands.planning.shown import show_plan
from accelsweep.drive.terminal.console import say

if TYPE_CHECKING:
    from accelsweep.plan.table import PlanTable


def print_config(home: Path, overrides: Sequence[str], what: str) -> None:
    """Print the composed config, as `--cfg job` does for users of Hydra."""
    if what != "job":
        raise InputError(f"--cfg {what!r} is not known here: the only choice is `--cfg job`")
    from accelsweep.plan.grid.job import composed_yaml

    say(composed_yaml(home, overrides), nl=False)


def print_plan(
    home: Path,
    overrides: Sequence[str],
    *,
    name: str | None,
    add_repeats: int,
    profile: str | None = None,
    as_json: bool = False,
    until_decided: bool = False,
) -> None:
    """Make the plan, print it, and write nothing. Raises InputError for a `profile` that does not fit the site."""
    plan = made_plan(home, overrides, name=name, add_repeats=add_repeats, profile=profile, until_decided=until_decided)
    show_plan(home, plan, as_json=as_json)


def planned(
    home: Path, overrides: Sequence[str], *, name: str | None, add_repeats: int, profile: str | None = None
) -> PlanTable:
    """Return what `print_plan` prints, as rows. Raises as it does."""
    return table_of(home, made_plan(home, overrides, name=name, add_repeats=add_repeats, profile=profile))
