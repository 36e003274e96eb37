"""A shell's completions after `accelsweep`: sweeps, choices of config groups, outcomes, profiles. Quick, and silent.

A shell asks while its user types. So names come from folders alone, and nothing heavy is imported. An error completes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from accelsweep.errors import AccelsweepError
from accelsweep.installation import config_folders, shipped_root
from accelsweep.records.layout import SweepFolder, known_sweeps

_Given = ParamSpec("_Given")

_Word = TypeVar("_Word", str, tuple[str, str])


def silent(complete: Callable[_Given, list[_Word]]) -> Callable[_Given, list[_Word]]:
    """Return the function with an empty answer in the place of an error, whose text would break the user's line."""

    @wraps(complete)
    def safe(*arguments: _Given.args, **named: _Given.kwargs) -> list[_Word]:
        try:
            return complete(*arguments, **named)
        except (AccelsweepError, OSError):
            return []

    return safe


@silent
def overrides(before: Sequence[str], incomplete: str) -> list[str]:
    """Return completions of an override, given the ones `before` it: `experiment=quickstart`, `model=resnet18`.

    bash breaks its line at `=` and asks for the value alone; other shells ask for the whole override. After a comma the
    next value is completed.
    """
    groups = choices(Path.cwd())
    if "=" in incomplete:
        key, _, typed = incomplete.partition("=")
        return [f"{key}={value}" for value in _values(groups.get(key, ()), typed)]
    key = next((word for word in reversed(before) if word != "="), "")
    if before and (before[-1] == "=" or key in groups):  # an override without a value is none: bash is at its `=`
        return list(_values(groups.get(key, ()), incomplete))
    wanted = groups if incomplete else ["experiment"]
    whole = (f"{group}={name}" for group in wanted for name in groups.get(group, ()))
    return [override for override in whole if override.startswith(incomplete)]


def _values(names: Sequence[str], typed: str) -> Iterator[str]:
    done, comma, rest = typed.rpartition(",")
    return (f"{done}{comma}{name}" for name in names if name.startswith(rest))


def choices(home: Path) -> dict[str, list[str]]:
    """Return the choices of each config group, those of the user's own `conf/` among them, in order."""
    found: dict[str, set[str]] = {}
    for conf in config_folders(home):
        for file in conf.glob("*/**/*.yaml"):
            group, *name = file.relative_to(conf).with_suffix("").parts
            found.setdefault(group, set()).add("/".join(name))
    return {group: sorted(found[group]) for group in sorted(found)}


@silent
def sweeps(incomplete: str) -> list[str]:
    """Return the names of the folder's sweeps."""
    return [name for name in known_sweeps(Path.cwd()) if name.startswith(incomplete)]


@silent
def settings(sweep: str | None, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of the settings of a sweep, with their labels."""
    from accelsweep.config.setting import label
    from accelsweep.records.plan import Manifest

    if sweep is None:
        return []
    planned = Manifest.read(SweepFolder(Path.cwd(), sweep).manifest).settings
    runnable = (setting for setting in planned if setting.unsupported is None)
    return [(setting.name, label(setting.axes)) for setting in runnable if setting.name.startswith(incomplete)]


@silent
def outcomes(incomplete: str) -> list[str]:
    """Return the outcomes of a run."""
    from accelsweep.results import Outcome

    return [outcome.value for outcome in Outcome if outcome.value.startswith(incomplete)]


@silent
def retried(incomplete: str) -> list[str]:
    """Return what `retry --outcome` takes."""
    answers = ("measured", "not_run")  # with nothing to re-open
    found = [name for name in outcomes(incomplete) if name not in answers]
    return found + [word for word in ("disturbed",) if word.startswith(incomplete)]


@silent
def sorts(incomplete: str) -> list[str]:
    """Return the orders of `runs --sort`."""
    from accelsweep.cli.runs import SORTS

    return [name for name in SORTS if name.startswith(incomplete)]


@silent
def profiles(incomplete: str) -> list[str]:
    """Return the names of the shipped profiles."""
    folders = (shipped_root() / "workflows" / "profiles").iterdir()
    return sorted(path.name for path in folders if path.is_dir() and path.name.startswith(incomplete))
