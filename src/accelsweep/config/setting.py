"""Settings, i.e. grid points named by a hash of the keys that determine the measurement, and their labels."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelsweep.config.schema import checked_config, without_defaults
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.plain_json import SharedJson, canonical_json, sha256_text
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


@dataclass(frozen=True, slots=True)
class Setting:
    """A grid point.

    `config` is the scientific part of the resolved config. `axes` maps the swept keys, in sweep order, to this
    setting's values. `unsupported` states why the setting cannot run; None if planning finds no reason.
    """

    name: str
    axes: dict[str, Any]
    config: SettingConfig
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
    return _name(canonical_json(_identity(config)))


def setting_names() -> Callable[[Mapping[str, Any]], str]:
    """Return `setting_name` for the configs of a grid; a part that settings share is written as JSON only once."""
    json_of = SharedJson(_identity)
    return lambda config: _name(json_of(config))


def _identity(config: Mapping[str, Any]) -> dict[str, Any]:
    return without_defaults(scientific(config))


def _name(identity: str) -> str:
    return sha256_text(identity)[:12]


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
    if isinstance(value, dict):
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


# A setting has one name, in plans, terminals, reports, files and MLflow. It consists of its values on the axes: what
# all settings of a sweep have in common is stated once, in headings.

_PRECISIONS = {"32-true": "32-bit", "64-true": "64-bit", "16-true": "16-bit"}
"""Maps a precision to its name; other precisions are shown under their own names."""

_COMMON_AXES = ("batch_size", "precision", "accelerator", "devices")

_NUMBERED_OPTION = re.compile(r"\d+_(?=[a-z])")
"""The number that orders the options of a config group, such as `2_larger_batch`, which are named by their words."""


def label_parts(axes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the parts of a setting's name: `batch 128`, `32-bit`, `2 processes`, `width=64`.

    A dotted key is shortened to its last word unless another axis ends in the same word.
    """
    batch, precision, accelerator, devices = (axes.get(key) for key in _COMMON_AXES)
    others = {key: value for key, value in axes.items() if key not in _COMMON_AXES}
    words = Counter(key.rpartition(".")[2] for key in others)
    parts = [
        *([] if batch is None else [f"batch {batch}"]),
        *([] if precision is None else [_PRECISIONS.get(str(precision), str(precision))]),
        *([] if accelerator is None and devices is None else [_describe_devices(accelerator, devices)]),
    ]
    for key, value in others.items():
        word = key.rpartition(".")[2]
        text = override_value(value)
        is_numbered = _NUMBERED_OPTION.match(text) is not None
        parts.append(option_words(text) if is_numbered else f"{word if words[word] == 1 else key}={text}")
    return tuple(map(masked, parts))


def label(axes: Mapping[str, Any]) -> str:
    """Return a setting's name: `batch 128, 32-bit, 2 processes`."""
    return ", ".join(label_parts(axes)) or "the only setting"


def series_label(axes: Mapping[str, Any], free: Collection[str], *more: str) -> str:
    """Return the name of settings that differ in the `free` axes only: the other parts of their names, then `more`."""
    parts = label_parts({key: value for key, value in axes.items() if key not in free})
    return ", ".join([*parts, *more]) or "all settings"


def repeat_label(setting: str, repeat: int) -> str:
    """Return the name of a run, given its setting's name: `batch 32, 2 processes, repeat 0`."""
    return f"{setting}, repeat {repeat}"


def option_words(option: str) -> str:
    """Return the words of a numbered option of a config group: `2_larger_batch` becomes `larger batch`."""
    return _NUMBERED_OPTION.sub("", option, count=1).replace("_", " ")


def shared_label(axes: Collection[str], settings: Iterable[Mapping[str, Any]]) -> str:
    """Return what all settings of a sweep over these axes have in common, for its heading: `32-bit, 1 process`.

    Each of the `settings` maps the keys of interest to its values.
    """
    values = {key: [setting.get(key) for setting in settings] for key in _COMMON_AXES if key not in axes}
    return ", ".join(label_parts({key: own[0] for key, own in values.items() if own and own == own[:1] * len(own)}))


def shared_devices(axes: Collection[str], configs: Iterable[SettingConfig]) -> str:
    """Return the kind and number of devices that all settings share, for a heading: ` on 1 process`, ` on GPU`."""
    used = [{"accelerator": config.accelerator, "devices": config.devices} for config in configs]
    shared = shared_label(axes, used)
    return f" on {shared}" if shared else ""


def _describe_devices(accelerator: Any, count: Any) -> str:
    """Return `2 processes` for a CPU, `2 a100 GPUs`, `4 devices` without a kind; `CPU` or `GPU` without a count."""
    kind, _, model = str(accelerator).partition(":")
    names = kind_or_unknown(kind)
    if count is None:
        return " ".join(filter(None, (model, "CPU" if kind == "cpu" else names.unit)))
    units = names.unit if count == 1 else names.units
    if not model:
        return f"{count} {units}"
    return f"{count} {units} on {model}" if kind == "cpu" else f"{count} {model} {units}"
