"""Settings, i.e. grid points named by a hash of the keys that determine the measurement, and their labels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
"""Top-level config keys that apply to the whole sweep; they affect neither measurements nor setting names."""

HOME_PLACEHOLDER = "{home}"
"""Placeholder for the working directory at the start of a path in a frozen config; runs receive the full path."""


class Setting(Frozen):
    """A grid point.

    `config` is the scientific part of the resolved config. `axes` maps the swept keys, in sweep order, to this
    setting's values. `unsupported` states why the setting cannot run; None if planning finds no reason.
    """

    name: str
    axes: dict[str, Any]
    config: Config
    unsupported: str | None = None


def scientific(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a resolved config that determines a run's measurement: everything except `PLAN_KEYS`."""
    return {key: value for key, value in config.items() if key not in PLAN_KEYS}


def setting_name(config: Mapping[str, Any]) -> str:
    """Return the name, 12 hexadecimal digits, of the setting with this frozen config.

    Keys set to their schema default are left out, so introducing a key with a default does not rename any setting. Full
    paths affect the name, because a different path may be on a different disk. Paths under the working directory are
    frozen with `HOME_PLACEHOLDER`, so moving a project as a whole preserves its setting names.
    """
    return sha256_text(canonical_json(without_defaults(scientific(config))))[:12]


def abbreviate_home(config: Any, home: Path) -> Any:
    """Replace the working directory `home` with `HOME_PLACEHOLDER` in each absolute path of a config.

    `home` is a resolved path. Paths in the config may refer to it through a symbolic link, as a shell's `$PWD` may.
    """

    def abbreviate(text: str) -> str:
        if not text.startswith("/") or "\n" in text or "\0" in text or "/../" in f"{text}/" or home == Path("/"):
            return text
        ends = [match.start() for match in re.finditer("/", text)][1:]
        end = next((end for end in [*ends, len(text)] if _resolved(text[:end]) == str(home)), None)
        return text if end is None else f"{HOME_PLACEHOLDER}{text[end:]}"

    return _with_texts(config, abbreviate)


def expand_home(config: Any, home: Path) -> Any:
    """Restore the full paths in a frozen config; the inverse of `abbreviate_home`."""

    def expand(text: str) -> str:
        if text != HOME_PLACEHOLDER and not text.startswith(f"{HOME_PLACEHOLDER}/"):
            return text
        return f"{home}{text.removeprefix(HOME_PLACEHOLDER)}"

    return _with_texts(config, expand)


def with_full_paths(config: SettingConfig, home: Path) -> SettingConfig:
    """Return the config with full paths for a run in the working directory `home`."""
    expanded = expand_home(config.raw, home)
    return config if expanded is config.raw else checked_config(expanded)


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Apply `change` to every string in `value` except keys; return the same object if nothing changes."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: _with_texts(item, change) for key, item in value.items()}
        return value if all(items[key] is value[key] for key in items) else items
    if isinstance(value, list | tuple):
        changed = [_with_texts(item, change) for item in value]
        return value if all(new is old for new, old in zip(changed, value, strict=True)) else changed
    return value


@lru_cache(maxsize=4096)
def _resolved(folder: str) -> str:
    return os.path.realpath(folder)


def override_value(value: Any) -> str:
    """Format a value as typed after `key=`: strings unchanged, everything else as JSON (`null`, `true`, `64`)."""
    return value if isinstance(value, str) else canonical_json(value)


class _Parts(NamedTuple):
    """The values of the common axes (None if an axis is not swept), and the other axes."""

    accelerator: Any
    devices: Any
    precision: Any
    batch_size: Any
    others: dict[str, Any]

    @property
    def count(self) -> Any:
        """The number of devices; 1 if only the device kind is swept, None if neither is swept."""
        return 1 if self.devices is None and self.accelerator is not None else self.devices


def _parts(axes: Mapping[str, Any]) -> _Parts:
    others = dict(axes)
    accelerator, devices, precision, batch_size = (others.pop(key, None) for key in _Parts._fields[:-1])
    return _Parts(accelerator, devices, precision, batch_size, others)


def _if_swept(prefix: str, value: Any) -> list[str]:
    return [] if value is None else [f"{prefix}{value}"]


def label(axes: Mapping[str, Any]) -> str:
    """Return a setting's short label: `cuda x2 | bf16-mixed | batch 256 | model.width=64`."""
    parts = _parts(axes)
    unswept = [] if parts.count is None else [_describe_devices(None, parts.count)]
    texts = [
        *(unswept if parts.accelerator is None else _if_swept(f"{parts.accelerator} x", parts.count)),
        *_if_swept("", parts.precision),
        *_if_swept("batch ", parts.batch_size),
        *(f"{key}={override_value(value)}" for key, value in parts.others.items()),
    ]
    return masked(" | ".join(texts)) or "the only setting"


def repeat_label(setting: str, repeat: int) -> str:
    """Return the short label of a run, given its setting's label: `cpu x2 | batch 32, repeat 0`."""
    return f"{setting}, repeat {repeat}"


_PRECISIONS = {
    "32-true": ("32-bit", "fp32"),
    "64-true": ("64-bit", "fp64"),
    "16-true": ("16-bit", "16-true"),
    "16-mixed": ("16-mixed", "fp16"),
    "bf16-mixed": ("bf16-mixed", "bf16"),
}
"""Maps a precision to its long and short names; other precisions are shown under their own names."""


def _precision(parts: _Parts, form: Literal[0, 1]) -> list[str]:
    name = str(parts.precision)
    return [] if parts.precision is None else [_PRECISIONS.get(name, (name, name))[form]]


def axis_descriptions(axes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a setting's name in prose: `32-bit`, `1 process`, `batch 128`, `model.width=64`."""
    parts = _parts(axes)
    texts = [
        *_precision(parts, 0),
        *([] if parts.count is None else [_describe_devices(parts.accelerator, parts.count)]),
        *_if_swept("batch ", parts.batch_size),
        *(f"{key}={override_value(value)}" for key, value in parts.others.items()),
    ]
    return tuple(map(masked, texts))


def describe_axes(axes: Mapping[str, Any]) -> str:
    """Return a setting's name in prose: `32-bit, 1 process, batch 128`."""
    return ", ".join(axis_descriptions(axes)) or "the only setting"


def short_label(axes: Mapping[str, Any]) -> str:
    """Return a setting's name for a narrow column: `cuda x2, bf16, b256, width=64`."""
    parts = _parts(axes)
    devices = " ".join([*_if_swept("", parts.accelerator), *_if_swept("x", parts.devices)])
    texts = [
        *filter(None, [devices]),
        *_precision(parts, 1),
        *_if_swept("b", parts.batch_size),
        *(f"{key.rpartition('.')[2]}={override_value(value)}" for key, value in parts.others.items()),
    ]
    return masked(", ".join(texts)) or "the only setting"


def shared_devices(axes: Collection[str], configs: Iterable[SettingConfig]) -> str:
    """Return the device kind and count for a heading, unless swept: ` on cpu x1`, ` on 2 devices`.

    Setting labels omit these if they are not swept. Values that differ between the `configs` are also left out.
    """
    configs = list(configs)
    kinds = set() if "accelerator" in axes else {config.accelerator for config in configs}
    counts = set() if "devices" in axes else {config.devices for config in configs}
    kind, count = (values.pop() if len(values) == 1 else None for values in (kinds, counts))
    if kind is not None:
        return f" on {kind}" + (f" x{count}" if count is not None else "")
    return f" on {count} devices" if count not in (None, 1) else ""


def _describe_devices(accelerator: Any, count: Any) -> str:
    """Return `2 processes` for a CPU, `1 GPU`, `2 a100 GPUs`, or `4 devices` if the device kind is not swept."""
    kind, _, model = str(accelerator).partition(":")
    names = kind_or_unknown(kind)
    units = names.unit if count == 1 else names.units
    if not model:
        return f"{count} {units}"
    return f"{count} {units} on {model}" if kind == "cpu" else f"{count} {model} {units}"
