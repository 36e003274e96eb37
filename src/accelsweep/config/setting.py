"""A setting: one point of the grid, named by the hash of the keys that decide the measurement."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from accelsweep.config.schema import Config, checked_config, without_defaults
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.json_documents import Frozen
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.redaction import masked
from accelsweep.run_config import SettingConfig

PLAN_KEYS = frozenset(
    {
        "name",
        "repeats",
        "repeats_most",
        "baseline",
        "exclude",
        "block",
        "limits",
        "site",
        "prices",
        "report",
        "analysis",
    }
)
"""Top-level config keys that steer the sweep but not the measurement of a run; they are no part of a setting's name."""


def scientific(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved config that decides the measurement of a run (everything but `PLAN_KEYS`)."""
    return {key: value for key, value in config.items() if key not in PLAN_KEYS}


def setting_name(config: Mapping[str, Any]) -> str:
    """Return the 12 hexadecimal digits that name the setting with this frozen config.

    Keys at their schema default are left out, so a key that is added later, with a default, renames no setting.
    Every path counts in full: another path may be another disk. One below the working folder is frozen
    as `HOME_PLACEHOLDER` and the rest, so that a project that was moved as a whole has the same settings.
    """
    return sha256_text(canonical_json(without_defaults(scientific(config))))[:12]


HOME_PLACEHOLDER = "{home}"
"""Stands for the working folder at the beginning of a path in a frozen config; a run gets the path in full."""


def abbreviate_home(config: Any, home: Path) -> Any:
    """Return a config with each absolute path at or below the working folder `home` begun with `HOME_PLACEHOLDER`.

    `home` is resolved. The path may lead to it through a symbolic link, as a shell's `$PWD` does.
    """
    return _each_text(config, lambda text: _from_home(text, str(home)))


def expand_home(config: Any, home: Path) -> Any:
    """Return a frozen config with each path that begins with `HOME_PLACEHOLDER` in full: `frozen_paths` undone."""
    return _each_text(config, lambda text: f"{home}{text.removeprefix(HOME_PLACEHOLDER)}" if _is_marked(text) else text)


def with_full_paths(config: SettingConfig, home: Path) -> SettingConfig:
    """Return the config that a run in the working folder `home` gets: its paths in full."""
    found = expand_home(config.raw, home)
    return config if found is config.raw else checked_config(found)


def _is_marked(text: str) -> bool:
    return text == HOME_PLACEHOLDER or text.startswith(f"{HOME_PLACEHOLDER}/")


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return `value` with every text in it changed, keys apart; the very same object where nothing changes."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: _each_text(item, change) for key, item in value.items()}
        return value if all(items[key] is value[key] for key in items) else items
    if isinstance(value, list | tuple):
        found = [_each_text(item, change) for item in value]
        return value if all(new is old for new, old in zip(found, value, strict=True)) else found
    return value


def _from_home(text: str, home: str) -> str:
    if not text.startswith("/") or "\n" in text or "\0" in text or "/../" in f"{text}/" or home == "/":
        return text
    ends = [match.start() for match in re.finditer("/", text)][1:]
    end = next((end for end in [*ends, len(text)] if _real(text[:end]) == home), None)
    return text if end is None else f"{HOME_PLACEHOLDER}{text[end:]}"


@lru_cache(maxsize=4096)
def _real(folder: str) -> str:
    return os.path.realpath(folder)


class Setting(Frozen):
    """One point of the grid.

    `config` is the scientific part of the resolved config. `axes` holds the swept keys, in sweep order, with this
    setting's values. `unsupported` is the reason why the setting cannot run, if the plan finds one, else None.
    """

    name: str
    axes: dict[str, Any]
    config: Config
    unsupported: str | None = None


def override_value(value: Any) -> str:
    """Return a value as one types it after `key=`: text as it is, everything else as JSON (`null`, `true`, `64`)."""
    return value if isinstance(value, str) else canonical_json(value)


class _Parts(NamedTuple):
    """The values of the usual axes, None for each that is not swept, and the other axes."""

    accelerator: Any
    devices: Any
    precision: Any
    batch_size: Any
    others: dict[str, Any]

    @property
    def count(self) -> Any:
        """The number of devices, which is 1 where only their kind is swept; None where neither is."""
        return 1 if self.devices is None and self.accelerator is not None else self.devices


def _parts(axes: Mapping[str, Any]) -> _Parts:
    others = dict(axes)
    accelerator, devices, precision, batch_size = (others.pop(key, None) for key in _Parts._fields[:-1])
    return _Parts(accelerator, devices, precision, batch_size, others)


def _told(before: str, value: Any) -> list[str]:
    return [] if value is None else [f"{before}{value}"]


def label(axes: Mapping[str, Any]) -> str:
    """Return a short text for a setting: `cuda x2 | bf16-mixed | batch 256 | model.width=64`."""
    one = _parts(axes)
    kind = "devices" if one.accelerator is None else one.accelerator
    parts = [*_told(f"{kind} x", one.count), *_told("", one.precision), *_told("batch ", one.batch_size)]
    parts += [f"{key}={override_value(value)}" for key, value in one.others.items()]
    return masked(" | ".join(parts)) or "the only setting"


def repeat_label(setting: str, repeat: int) -> str:
    """Return a short text for a run of the setting with this label: `cpu x2 | batch 32, repeat 0`."""
    return f"{setting}, repeat {repeat}"


_PRECISIONS = {
    "32-true": ("32-bit", "fp32"),
    "64-true": ("64-bit", "fp64"),
    "16-true": ("16-bit", "16-true"),
    "16-mixed": ("16-mixed", "fp16"),
    "bf16-mixed": ("bf16-mixed", "bf16"),
}
"""The words and the letters for a precision; any other keeps its name."""


def _precision(one: _Parts, form: int) -> list[str]:
    """Return the precision in words (`form` 0) or in letters (1), if it is swept."""
    name = str(one.precision)
    return [] if one.precision is None else [_PRECISIONS.get(name, (name, name))[form]]


def axis_descriptions(axes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a setting's name as prose: `32-bit`, `1 process`, `batch 128`, `model.width=64`."""
    one = _parts(axes)
    devices = [] if one.count is None else [_devices(one.accelerator, one.count)]
    parts = [*_precision(one, 0), *devices, *_told("batch ", one.batch_size)]
    parts += [f"{key}={override_value(value)}" for key, value in one.others.items()]
    return tuple(map(masked, parts))


def describe_axes(axes: Mapping[str, Any]) -> str:
    """Return a setting's name as prose: `32-bit, 1 process, batch 128`."""
    return ", ".join(axis_descriptions(axes)) or "the only setting"


def short_label(axes: Mapping[str, Any]) -> str:
    """Return a setting's name for a narrow column: `cuda x2, bf16, b256, width=64`."""
    one = _parts(axes)
    devices = " ".join([*_told("", one.accelerator), *_told("x", one.devices)])
    parts = [*filter(None, [devices]), *_precision(one, 1), *_told("b", one.batch_size)]
    parts += [f"{key.rpartition('.')[2]}={override_value(value)}" for key, value in one.others.items()]
    return masked(", ".join(parts)) or "the only setting"


def shared_devices(axes: Collection[str], configs: Iterable[SettingConfig]) -> str:
    """Return the kind and number of devices that no axis sweeps: ` on cpu x1`, ` on cpu`, ` on 2 devices`, or nothing.

    Settings' labels leave them out, so a heading tells them once. Values that differ between the `configs` are left out
    too.
    """
    known = list(configs)
    kinds = set() if "accelerator" in axes else {config.accelerator for config in known}
    counts = set() if "devices" in axes else {config.devices for config in known}
    kind, count = (found.pop() if len(found) == 1 else None for found in (kinds, counts))
    if kind is not None:
        return f" on {kind}" + (f" x{count}" if count is not None else "")
    return f" on {count} devices" if count not in (None, 1) else ""


def _devices(accelerator: Any, count: Any) -> str:
    """Return the devices of a setting: `2 processes` on a CPU, `1 GPU`, `2 a100 GPUs`, `4 devices` of no swept kind."""
    kind, _, model = str(accelerator).partition(":")
    names = kind_or_unknown(kind)
    units = names.unit if count == 1 else names.units
    if not model:
        return f"{count} {units}"
    return f"{count} {units} on {model}" if kind == "cpu" else f"{count} {model} {units}"
