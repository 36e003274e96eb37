"""Produces one resolved config per grid point without composing each point through Hydra.

Hydra composes once for each distinct combination of config group choices and other overrides that change the config's
structure. A plain value, whether for a known or an added key, then replaces a leaf in a copy that shares everything
else. Interpolations are resolved again only if an interpolation may refer to a changed value. A property test compares
the results with Hydra's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import AnyNode, OmegaConf

from accelsweep.config.hydra import Composer, Grid
from accelsweep.config.interpolation import (
    nodes,
    plain_data,
    referenced_names,
    refuse_missing_values,
    refuse_resolvers,
)
from accelsweep.config.setting import PLAN_KEYS
from accelsweep.errors import InputError
from accelsweep.plain_json import MISSING, look_up
from accelsweep.run_config import SettingConfig

AUTO_BATCH_SIZE = "auto"
"""The value of `batch_size` that requests a search."""

PLACEHOLDER_BATCH_SIZE = 32
"""The placeholder for `auto` until the batch size is known."""

_KEY = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")

_ASSIGNMENTS = (OverrideType.CHANGE, OverrideType.ADD, OverrideType.FORCE_ADD)

_OverrideKind = Literal["choice", "plain", "other"]
"""A config group choice, a plain value that may replace a leaf, or another override that Hydra must compose."""


@dataclass(frozen=True, slots=True)
class GridPoint:
    """A grid point: its axis values and its resolved config.

    `config` is the scientific part, which determines the setting's name, and `plan_config` is the part under
    `PLAN_KEYS`. `choices` contains the config group choices, and `added` contains the top-level keys added with `+` on
    the command line. `unsupported` states why a point cannot be measured. If `batch_size: auto` was requested, `config`
    contains `PLACEHOLDER_BATCH_SIZE`, and `with_batch` returns the scientific config with a given batch size instead.
    """

    axes: dict[str, Any]
    config: dict[str, Any]
    plan_config: dict[str, Any]
    choices: Mapping[str, Any]
    added: frozenset[str]
    unsupported: str | None = None
    with_batch: Callable[[int], dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class CheckedPoint:
    """A grid point with a checked config and, if its batch size must be searched for, the config of that search.

    The other fields are as in `GridPoint`.
    """

    axes: dict[str, Any]
    config: SettingConfig
    choices: Mapping[str, Any]
    added: frozenset[str]
    unsupported: str | None = None
    search: SettingConfig | None = None


class GridPoints(NamedTuple):
    """Grid points as expanded by a feature, notes for the user, and the option that requested the expansion.

    Consecutive settings differ in only one respect.
    """

    points: Iterator[GridPoint]
    notes: tuple[str, ...]
    option: str


def expand(composer: Composer, grid: Grid, auto: str) -> Iterator[GridPoint]:
    """Yield the points of `grid` in order; `auto` is the accelerator to substitute for `accelerator: auto`.

    Raises InputError for an override that does not match the config, a missing value, a resolver, or a swept plan key.
    """
    for index in grid.swept:
        override = composer.parse(grid.jobs[0][index])
        if re.split(r"[./@]", override.key_or_group)[0] in PLAN_KEYS:
            raise InputError(
                f"'{override.key_or_group}' cannot be swept: it applies to the whole sweep and changes no measurement. "
                "Give it one value, or plan one sweep per value with --name"
            )
    compositions, axis_of = _Compositions(composer, grid), _axis_of(composer)
    for job in grid.jobs:
        composition, values = compositions.of(job)
        config, plan_config = composition.resolved(values, auto)
        with_batch = None
        if config.get("batch_size") == AUTO_BATCH_SIZE:
            with_batch = partial(_with_batch, composition, values, auto)
            config = with_batch(PLACEHOLDER_BATCH_SIZE)
        axes = dict(axis_of(job[index], config) for index in grid.swept)
        yield GridPoint(axes, config, plan_config, composition.choices, composition.added, with_batch=with_batch)


def _with_batch(composition: _Composition, values: Mapping[str, Any], auto: str, batch: int) -> dict[str, Any]:
    return composition.resolved({**values, "batch_size": batch}, auto)[0]


def axis_name(override: Override) -> str:
    """Return the axis name for an override with several values."""
    return override.get_key_element().lstrip("+")


def _axis_of(composer: Composer) -> Callable[[str, Mapping[str, Any]], tuple[str, Any]]:
    """Return a function that takes a swept override and a resolved config, and returns the axis and its value."""

    @cache
    def parsed(line: str) -> tuple[str, str | None, Any]:
        override = composer.parse(line)
        in_config = not composer.is_group_choice(override) and not override.is_delete()
        return axis_name(override), override.key_or_group if in_config else None, override.value()

    def axis_of(line: str, config: Mapping[str, Any]) -> tuple[str, Any]:
        axis, key, typed = parsed(line)
        value = MISSING if key is None else look_up(config, key)
        return axis, typed if value is MISSING else value

    return axis_of


class _Compositions:
    """A grid's compositions. Jobs that differ only in plain values, including those of added keys, share a composition.

    A shared composition is built from the first of its jobs, so that an invalid override raises the same error that
    Hydra raises for that job.
    """

    def __init__(self, composer: Composer, grid: Grid) -> None:
        self._composer = composer
        self._keys = [composer.parse(line).key_or_group for line in grid.jobs[0]]
        self._kinds: dict[str, _OverrideKind] = {}
        self._plain: dict[tuple[_OverrideKind, ...], tuple[int, ...]] = {}
        self._first: dict[int, str] = {}
        self._compositions: dict[tuple[str, ...], _Composition] = {}
        self._shapes: dict[tuple[str | None, ...], tuple[_Composition, list[int]]] = {}

    def of(self, job: Sequence[str]) -> tuple[_Composition, dict[str, Any]]:
        """Return a job's composition and, keyed by config key, the values that replace leaves in it."""
        shape = tuple([None if self._kind(line) == "plain" else line for line in job])
        if shape not in self._shapes:
            plain = self._plain_in(job)
            composition = self._shared(job, plain)
            leaves = [index for index in plain if self._keys[index] in composition.leaves]
            if len(leaves) < len(plain):
                composition = self._shared(job, leaves)
            if len(leaves) < shape.count(None):  # the composition also depends on a plain value
                return composition, self._values(job, leaves)
            self._shapes[shape] = composition, leaves
        composition, leaves = self._shapes[shape]
        return composition, self._values(job, leaves)

    def _values(self, job: Sequence[str], leaves: Sequence[int]) -> dict[str, Any]:
        return {self._keys[index]: self._composer.parse(job[index]).value() for index in leaves}

    def _shared(self, job: Sequence[str], plain: Sequence[int]) -> _Composition:
        """Return the composition shared by the jobs that differ from this one only in the values at indices `plain`."""
        lines = list(job)
        for index in plain:
            lines[index] = self._first.setdefault(index, job[index])
        if (first := tuple(lines)) not in self._compositions:
            self._compositions[first] = _Composition(self._composer, first)
        return self._compositions[first]

    def _plain_in(self, job: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of the job's plain values whose keys are affected by no override except group choices."""
        kinds = tuple(self._kind(line) for line in job)
        if kinds not in self._plain:
            keys = [(index, self._keys[index]) for index, kind in enumerate(kinds) if kind != "choice"]
            self._plain[kinds] = tuple(
                index
                for index, key in keys
                if kinds[index] == "plain" and not any(_overlap(key, other) for at, other in keys if at != index)
            )
        return self._plain[kinds]

    def _kind(self, line: str) -> _OverrideKind:
        if line not in self._kinds:
            override = self._composer.parse(line)
            if self._composer.is_group_choice(override):
                self._kinds[line] = "choice"
            else:
                self._kinds[line] = "plain" if _is_plain(override) else "other"
        return self._kinds[line]


def _is_plain(override: Override) -> bool:
    value = override.value()
    return (
        override.type in _ASSIGNMENTS
        and override.package is None
        and _KEY.fullmatch(override.key_or_group) is not None
        and (value is None or isinstance(value, int | float | str))
        and not (isinstance(value, str) and ("${" in value or value == "???"))
    )


def _overlap(key: str, other: str) -> bool:
    return _KEY.fullmatch(other) is None or key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


class _Composition:
    """A Hydra composition from which points that differ only in plain values are derived."""

    def __init__(self, composer: Composer, lines: tuple[str, ...]) -> None:
        config = composer.compose_for_grid(lines)
        self.choices = dict(config.hydra.runtime.choices)
        overrides = [composer.parse(line) for line in lines]
        self.added = frozenset(o.key_or_group.split(".")[0] for o in overrides if o.is_add() or o.is_force_add())
        keys: list[Any] = [key for key in config if key != "hydra"]  # numeric keys are rejected later
        self._config = OmegaConf.masked_copy(config, keys)
        raw = dict(nodes(self._config))
        self.leaves = {key for key, node in raw.items() if type(node) is AnyNode}
        self._interpolations = {key: str(node._value()) for key, node in raw.items() if node._is_interpolation()}
        self._referenced = referenced_names(self._interpolations.values())
        self._places: dict[str, tuple[str, bool]] = {}
        self._resolved: dict[tuple[tuple[str, str], ...], tuple[dict[str, Any], dict[str, Any]]] = {}
        self._parts: dict[tuple[Any, ...], Any] = {}

    def resolved(self, values: dict[str, Any], auto: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Insert the plain `values` and return the resolved scientific config and plan config.

        Results share the top-level parts in which they agree, so that each part is checked only once.
        """
        if values.get("accelerator") == "auto":
            values = {**values, "accelerator": auto}
        resolving: list[tuple[str, str]] = []
        replaced: dict[str, list[tuple[str, str]]] = {}
        for key, value in values.items():
            head, must_resolve = self._place(key)
            (resolving if must_resolve else replaced.setdefault(head, [])).append((key, repr(value)))
        resolved = tuple(resolving)
        if resolved not in self._resolved:
            self._resolved[resolved] = self._resolve(values, auto)
        config, plan_config = self._resolved[resolved]
        for head, leaves in replaced.items():
            if (known := (resolved, *leaves)) not in self._parts:
                part = config
                for key, _ in leaves:
                    part = _with_leaf(part, key.split("."), values[key])
                self._parts[known] = part[head]
        return {**config, **{head: self._parts[resolved, *leaves] for head, leaves in replaced.items()}}, plan_config

    def _place(self, key: str) -> tuple[str, bool]:
        """Return the top-level key above `key`, and whether interpolations must be resolved again if it changes."""
        if key not in self._places:
            parts = key.split(".")
            referenced = self._referenced is None or not self._referenced.isdisjoint(parts)
            self._places[key] = parts[0], parts[0] in PLAN_KEYS or referenced
        return self._places[key]

    def _resolve(self, values: Mapping[str, Any], auto: str) -> tuple[dict[str, Any], dict[str, Any]]:
        for key, value in values.items():
            OmegaConf.update(self._config, key, value)
        if OmegaConf.select(self._config, "accelerator") == "auto":
            self._config.accelerator = auto
        refuse_resolvers({key: text for key, text in self._interpolations.items() if key not in values})
        scientific = self._scientific()
        refuse_missing_values(scientific)
        return scientific, {key: plain_data(self._config, key) for key in PLAN_KEYS & set(self._config)}

    def _scientific(self) -> Any:
        """Resolve everything except the plan keys, which cannot be found meanwhile."""
        content: Any = self._config._content
        plan_nodes = {key: content.pop(key) for key in PLAN_KEYS & set(content)}
        try:
            return plain_data(self._config)
        finally:
            content.update(plan_nodes)


def plan_config_of(composer: Composer, job: Sequence[str]) -> dict[str, Any]:
    """Return the resolved plan keys of one job's config; raise InputError if they contain a resolver."""
    config = composer.compose_for_grid(job)
    raw = ((key, node) for key, node in nodes(config) if key.partition(".")[0] in PLAN_KEYS)
    refuse_resolvers({key: str(node._value()) for key, node in raw if node._is_interpolation()})
    return {key: plain_data(config, key) for key in PLAN_KEYS & set(config)}


def _with_leaf(tree: dict[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of `tree` with the leaf at `path` replaced; everything outside the path is shared."""
    head, rest = path[0], path[1:]
    new = value if not rest else _with_leaf(tree[head], rest, value)
    return tree if new is tree[head] else {**tree, head: new}
