"""The cells that a side of a claim's figure names, by values of their axes or configs.

The plan keeps no config of a cell that it rules out. Other cells may differ from it only in axes that are keys of the
config. Their configs give the missing values, where they agree. A value that no cell gives counts as possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelsweep.analysis.run_results import CellRuns
from accelsweep.config.schema import CellConfig
from accelsweep.json_documents import look_up

_UNTOLD = object()


@dataclass(frozen=True)
class Side:
    """The wanted values of one side, and its cells. If `known` is False, these cells may have all of the values."""

    wanted: Mapping[str, Any]
    cells: tuple[CellRuns, ...]
    known: bool = True


def named(wanted: Mapping[str, Any], groups: Sequence[CellRuns]) -> Side:
    """Return the cells that have all of these values; if there are none, those whose values are unknown."""
    having = [
        one for one in groups if all(_value(one, key, groups) in (value, _UNTOLD) for key, value in wanted.items())
    ]
    surely = [one for one in having if all(_value(one, key, groups) == value for key, value in wanted.items())]
    return Side(wanted, tuple(surely or having), known=bool(surely) or not having)


def _value(group: CellRuns, key: str, groups: Sequence[CellRuns]) -> Any:
    """Return a value on an axis or in the config; MISSING where there is none, _UNTOLD where no cell tells it."""
    if key in group.planned.axes:
        return group.planned.axes[key]
    if group.config is not None:
        return look_up(group.config.raw, key)
    told = [look_up(other.config.raw, key) for other in groups if other.config is not None and _tells(other, group)]
    return told[0] if told and all(value == told[0] for value in told) else _UNTOLD


def _tells(other: CellRuns, group: CellRuns) -> bool:
    """Return whether the config of `other` equals that of `group` but for keys that are axes: no group, no mapping."""
    ours, theirs, config = group.planned.axes, other.planned.axes, other.config
    return (
        config is not None
        and ours.keys() == theirs.keys()
        and all(ours[axis] == value or _is_leaf(config, axis, value) for axis, value in theirs.items())
    )


def _is_leaf(config: CellConfig, axis: str, value: Any) -> bool:
    return not isinstance(value, Mapping) and look_up(config.raw, axis) == value
