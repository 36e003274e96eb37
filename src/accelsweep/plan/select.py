"""Pick cells by the values of their keys: `exclude:` rules and the choice of the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accelsweep.base.errors import InputError
from accelsweep.base.lookup import NO_SUCH_KEY, looked_up
from accelsweep.plan.grid.expand import CheckedPoint
from accelsweep.plan.grid.explain import dotted_keys, suggest
from accelsweep.plan.refusals.check import Rule
from accelsweep.plan.refusals.wording import FileOf


def matches(wanted: Mapping[str, Any], point: CheckedPoint) -> bool:
    """Return whether every key of `wanted` has its value, or one of its listed values, at this point of the grid.

    A key is a dotted config key or the name of a config group, whose value is then the chosen file's name.
    """
    return all(_is_one_of(_value(point, key), value) for key, value in flat(wanted).items())


def flat(wanted: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return `wanted` by dotted keys: a command line that says `+baseline.data.rows=8` nests them."""
    found: dict[str, Any] = {}
    for key, value in wanted.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def _value(point: CheckedPoint, key: str) -> Any:
    value = looked_up(point.config.raw, key)
    return point.choices.get(key, value) if value is NO_SUCH_KEY or isinstance(value, dict) else value


def _is_one_of(actual: Any, wanted: Any) -> bool:
    options = wanted if isinstance(wanted, list) and not isinstance(actual, list) else [wanted]
    return any(actual == option and isinstance(actual, bool) == isinstance(option, bool) for option in options)


def refuse_unknown_keys(wanted: Mapping[str, Any], points: Sequence[CheckedPoint], where: str, file_of: FileOf) -> None:
    """Raise InputError if `wanted` names a key that no point of the grid has."""
    for key in flat(wanted):
        if all(_value(point, key) is NO_SUCH_KEY for point in points):
            known = list(dotted_keys(points[0].config.raw))
            raise InputError(
                f"{where}: unknown key '{key}'{suggest(key, known)}; look in {file_of(where.partition('.')[0])}"
            )


def excluded_by(rules: Iterable[Rule], point: CheckedPoint) -> str | None:
    """Return the reason of the first rule that drops this point, or None if it stays."""
    return next((rule.because for rule in rules if matches(rule.when, point)), None)
