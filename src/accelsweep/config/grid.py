"""One resolved config per point of the grid, without composing each point through Hydra.

Hydra composes once per distinct choice of config groups, and of any other override that changes the config's structure.
A plain value, of a known key or of an added one, then replaces a leaf in a copy that shares everything else.
Interpolations are resolved again only for values that some interpolation may refer to. A property test holds both ways
to the same configs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import AnyNode, OmegaConf

from accelsweep.config.hydra import Composer, Grid
from accelsweep.config.interpolation import nodes, plain_data, referenced_names, refuse_missing_values, refuse_resolvers
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.errors import InputError
from accelsweep.plain_json import MISSING, look_up
from accelsweep.run_config import SettingConfig

_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")

_GIVES_A_VALUE = (OverrideType.CHANGE, OverrideType.ADD, OverrideType.FORCE_ADD)

AUTO_BATCH_SIZE, FIRST_TRY = "auto", 32
"""The value of `batch_size` that asks for a search, and the batch that stands in its place until it is known."""

_Sort = Literal["choice", "plain", "other"]
"""Of an override: the choice of a config group, a plain value that may replace a leaf, or what Hydra must compose."""


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid: the values of its axes and its resolved config.

    `science` is the part that names the setting, and `steering` the plan-level part. `choices` are the config groups'
    choices, and `added` the top-level keys that the command line added with `+`. `lacks` is the reason why a point
    changes nothing that is measured. `with_batch` gives the scientific config with a batch in the place of `auto`,
    where that was asked for; until then `FIRST_TRY` stands there.
    """

    axes: dict[str, Any]
    science: dict[str, Any]
    steering: dict[str, Any]
    choices: Mapping[str, Any]
    added: frozenset[str]
    lacks: str | None = None
    with_batch: Callable[[int], dict[str, Any]] | None = None


@dataclass(frozen=True)
class CheckedPoint:
    """A point of the grid whose config was checked. `search` is that of its automatic batch, None where one was given.

    The other fields are those of `GridPoint`.
    """

    axes: dict[str, Any]
    config: SettingConfig
    choices: Mapping[str, Any]
    added: frozenset[str]
    lacks: str | None = None
    search: SettingConfig | None = None


class GridPoints(NamedTuple):
    """The points of a grid that a feature expands in its own way, notes for the user, and the option that asked for it.

    Such settings differ in one thing only, from one to the next.
    """

    points: Iterator[GridPoint]
    notes: tuple[str, ...]
    option: str


def expand(composer: Composer, grid: Grid, auto: str) -> Iterator[GridPoint]:
    """Yield the points of `grid` in its order; `auto` is the accelerator in place of `accelerator: auto`.

    Raises InputError for an override that does not fit the config, a missing value, a resolver, or a swept plan key.
    """
    _refuse_swept_plan_keys(composer, grid)
    bases = _Bases(composer, grid)
    for job in grid.jobs:
        base, values = bases.of(job)
        science, steering = base.resolved(values, auto)
        with_batch = None
        if science.get("batch_size") == AUTO_BATCH_SIZE:
            with_batch = partial(_with_batch, base, values, auto)
            science = with_batch(FIRST_TRY)
        swept = [composer.parse(job[index]) for index in grid.swept]
        axes = {axis_name(override): _axis_value(composer, override, science) for override in swept}
        yield GridPoint(axes, science, steering, base.choices, base.added, with_batch=with_batch)


def _with_batch(base: _Base, values: Mapping[str, Any], auto: str, batch: int) -> dict[str, Any]:
    return base.resolved({**values, "batch_size": batch}, auto)[0]


def _refuse_swept_plan_keys(composer: Composer, grid: Grid) -> None:
    for index in grid.swept:
        override = composer.parse(grid.jobs[0][index])
        if re.split(r"[./@]", override.key_or_group)[0] in PLAN_KEYS:
            raise InputError(
                f"'{override.key_or_group}' cannot be swept: it steers the whole sweep and changes no measurement. "
                "Give it one value, or plan one sweep per value with --name"
            )


def axis_name(override: Override) -> str:
    """Return the name of the axis of an override with several values."""
    return override.get_key_element().lstrip("+")


def _axis_value(composer: Composer, override: Override, science: Mapping[str, Any]) -> Any:
    if not composer.is_group_choice(override) and not override.is_delete():
        found = look_up(science, override.key_or_group)
        if found is not MISSING:
            return found
    return override.value()


class _Bases:
    """The compositions of a grid: one for all jobs that differ in plain values only, added keys' values included.

    It is that of the first of these jobs as it stands. So it fails as that job would, and in the words for it.
    """

    def __init__(self, composer: Composer, grid: Grid) -> None:
        self._composer = composer
        self._keys = [composer.parse(line).key_or_group for line in grid.jobs[0]]
        self._sorts: dict[str, _Sort] = {}
        self._plain: dict[tuple[_Sort, ...], tuple[int, ...]] = {}
        self._first: dict[int, str] = {}
        self._bases: dict[tuple[str, ...], _Base] = {}

    def of(self, job: Sequence[str]) -> tuple[_Base, dict[str, Any]]:
        """Return the composition for a job, and the values that replace leaves of it, by key."""
        plain = self._plain_in(job)
        base = self._alike(job, plain)
        leaves = [index for index in plain if self._keys[index] in base.leaves]
        if len(leaves) < len(plain):
            base = self._alike(job, leaves)
        return base, {self._keys[index]: self._composer.parse(job[index]).value() for index in leaves}

    def _alike(self, job: Sequence[str], plain: Sequence[int]) -> _Base:
        """Return the composition of the first job that differs from this one in the values at `plain` only."""
        lines = list(job)
        for index in plain:
            lines[index] = self._first.setdefault(index, job[index])
        if (first := tuple(lines)) not in self._bases:
            self._bases[first] = _Base(self._composer, first)
        return self._bases[first]

    def _plain_in(self, job: Sequence[str]) -> tuple[int, ...]:
        """Return where the job has a plain value for a key that no other override than a group's choice touches."""
        sorts = tuple(self._sort_of(line) for line in job)
        if sorts not in self._plain:
            keys = [(index, self._keys[index]) for index, sort in enumerate(sorts) if sort != "choice"]
            self._plain[sorts] = tuple(
                index
                for index, key in keys
                if sorts[index] == "plain" and not any(_overlap(key, other) for at, other in keys if at != index)
            )
        return self._plain[sorts]

    def _sort_of(self, line: str) -> _Sort:
        if line not in self._sorts:
            override = self._composer.parse(line)
            self._sorts[line] = (
                "choice" if self._composer.is_group_choice(override) else "plain" if _is_plain(override) else "other"
            )
        return self._sorts[line]


def _is_plain(override: Override) -> bool:
    value = override.value()
    return (
        override.type in _GIVES_A_VALUE
        and override.package is None
        and _KEY.fullmatch(override.key_or_group) is not None
        and (value is None or isinstance(value, int | float | str))
        and not (isinstance(value, str) and ("${" in value or value == "???"))
    )


def _overlap(one: str, other: str) -> bool:
    plain = _KEY.fullmatch(other) is not None
    return not plain or one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


class _Base:
    """One composition by Hydra, from which the points that differ in plain values only are derived."""

    def __init__(self, composer: Composer, lines: tuple[str, ...]) -> None:
        config = composer.compose_for_grid(lines)
        self.choices = dict(config.hydra.runtime.choices)
        added = [composer.parse(line) for line in lines]
        self.added = frozenset(o.key_or_group.split(".")[0] for o in added if o.is_add() or o.is_force_add())
        ours: list[Any] = [key for key in config if key != "hydra"]  # a key may be a number, to be refused by name
        self._whole = OmegaConf.masked_copy(config, ours)
        self._science = OmegaConf.masked_copy(config, [key for key in ours if key not in PLAN_KEYS])
        raw = dict(nodes(self._whole))
        self.leaves = {key for key, node in raw.items() if type(node) is AnyNode}
        self._interpolations = {key: str(node._value()) for key, node in raw.items() if node._is_interpolation()}
        self._referred = referenced_names(self._interpolations.values())
        self._resolved: dict[tuple[Any, ...], tuple[dict[str, Any], dict[str, Any]]] = {}

    def resolved(self, values: dict[str, Any], auto: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the resolved scientific and plan-level configs with the plain `values` in place."""
        if values.get("accelerator") == "auto":
            values = {**values, "accelerator": auto}
        deep = tuple((key, type(value), value) for key, value in values.items() if self._is_deep(key))
        if deep not in self._resolved:
            self._resolved[deep] = self._resolve(values, auto)
        science, steering = self._resolved[deep]
        for key, value in values.items():
            if not self._is_deep(key):
                science = _replaced(science, key.split("."), value)
        return science, steering

    def _is_deep(self, key: str) -> bool:
        parts = key.split(".")
        return self._referred is None or parts[0] in PLAN_KEYS or not self._referred.isdisjoint(parts)

    def _resolve(self, values: Mapping[str, Any], auto: str) -> tuple[dict[str, Any], dict[str, Any]]:
        for config in (self._whole, self._science):
            for key, value in values.items():
                if key.split(".")[0] in config:
                    OmegaConf.update(config, key, value)
            if OmegaConf.select(config, "accelerator") == "auto":
                config.accelerator = auto
        refuse_resolvers({key: text for key, text in self._interpolations.items() if key not in values})
        science = plain_data(self._science)
        refuse_missing_values(science)
        return science, {key: plain_data(self._whole, key) for key in PLAN_KEYS & set(self._whole)}


def plan_config_of(composer: Composer, job: Sequence[str]) -> dict[str, Any]:
    """Return the resolved plan-level part of the config of one job; raise InputError for a resolver in it."""
    config = composer.compose_for_grid(job)
    steering = ((key, node) for key, node in nodes(config) if key.partition(".")[0] in PLAN_KEYS)
    refuse_resolvers({key: str(node._value()) for key, node in steering if node._is_interpolation()})
    return {key: plain_data(config, key) for key in PLAN_KEYS & set(config)}


def _replaced(tree: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return `tree` with the leaf at `path` replaced; everything beside the path is shared with the original."""
    head, rest = path[0], path[1:]
    new = value if not rest else _replaced(tree[head], rest, value)
    return tree if new is tree[head] else {**tree, head: new}
