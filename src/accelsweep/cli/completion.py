"""Shell completions for sweeps, settings, config group choices, outcomes and profiles.

Completion must be fast, so names come from folder listings and nothing heavy is imported. On errors, nothing is
returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from accelsweep.errors import AccelsweepError
from accelsweep.installation import config_folders, shipped_root
from accelsweep.records.layout import SweepFolder, known_sweeps

_Arguments = ParamSpec("_Arguments")

_Completion = TypeVar("_Completion", str, tuple[str, str])


def silent(complete: Callable[_Arguments, list[_Completion]]) -> Callable[_Arguments, list[_Completion]]:
    """Decorate a completion to return nothing instead of raising: a message would garble the user's command line."""

    @wraps(complete)
    def safe(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> list[_Completion]:
        try:
            return complete(*arguments, **named)
        except (AccelsweepError, OSError):
            return []

    return safe


@silent
def overrides(before: Sequence[str], incomplete: str) -> list[str]:
    """Complete an override such as `experiment=quickstart`; `before` contains the preceding words.

    bash splits words at `=` and completes the value alone; other shells complete the whole override. After a comma, the
    next value is completed.
    """
    groups = choices(Path.cwd())
    if "=" in incomplete:
        key, _, typed = incomplete.partition("=")
        return [f"{key}={value}" for value in _values(groups.get(key, ()), typed)]
    key = next((word for word in reversed(before) if word != "="), "")
    if before and (before[-1] == "=" or key in groups):  # bash, at or after the `=`
        return list(_values(groups.get(key, ()), incomplete))
    wanted = groups if incomplete else ["experiment"]
    candidates = (f"{group}={name}" for group in wanted for name in groups.get(group, ()))
    return [override for override in candidates if override.startswith(incomplete)]


def _values(names: Sequence[str], typed: str) -> Iterator[str]:
    done, comma, rest = typed.rpartition(",")
    return (f"{done}{comma}{name}" for name in names if name.startswith(rest))


def choices(home: Path) -> dict[str, list[str]]:
    """Return the sorted choices of each config group, including those of the user's own `conf/`."""
    names: dict[str, set[str]] = {}
    for conf in config_folders(home):
        for file in conf.glob("*/**/*.yaml"):
            group, *name = file.relative_to(conf).with_suffix("").parts
            names.setdefault(group, set()).add("/".join(name))
    return {group: sorted(names[group]) for group in sorted(names)}


@silent
def sweeps(incomplete: str) -> list[str]:
    """Complete the name of a sweep."""
    return [name for name in known_sweeps(Path.cwd()) if name.startswith(incomplete)]


@silent
def settings(sweep: str | None, incomplete: str) -> list[tuple[str, str]]:
    """Complete the name of one of a sweep's settings, showing its label."""
    from accelsweep.config.setting import label
    from accelsweep.records.plan import Manifest

    if sweep is None:
        return []
    return [
        (setting.name, label(setting.axes))
        for setting in Manifest.read(SweepFolder(Path.cwd(), sweep).manifest).settings
        if setting.unsupported is None and setting.name.startswith(incomplete)
    ]


@silent
def outcomes(incomplete: str) -> list[str]:
    """Complete an outcome."""
    from accelsweep.results import Outcome

    return [outcome.value for outcome in Outcome if outcome.value.startswith(incomplete)]


@silent
def retried(incomplete: str) -> list[str]:
    """Complete the value of `retry --outcome`."""
    names = [*outcomes(""), "disturbed"]
    return [name for name in names if name not in ("measured", "not_run") and name.startswith(incomplete)]


@silent
def sorts(incomplete: str) -> list[str]:
    """Complete the value of `runs --sort`."""
    from accelsweep.cli.runs import SORTS

    return [name for name in SORTS if name.startswith(incomplete)]


@silent
def profiles(incomplete: str) -> list[str]:
    """Complete the name of a shipped profile."""
    folders = (shipped_root() / "workflows" / "profiles").iterdir()
    return sorted(path.name for path in folders if path.is_dir() and path.name.startswith(incomplete))
