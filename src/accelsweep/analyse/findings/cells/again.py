"""A setting to take away: the command that measures it again alone, and the Trainer's arguments to paste."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from accelsweep.core.cells.cell import as_typed
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.trainer import DEFAULTS
from accelsweep.core.cells.versions import without_version, words_for
from accelsweep.core.planned.plans import Manifest, PlannedCell

_PLAIN = re.compile(r"[\w.+/:-]+")
_KEY = re.compile(r"([+~]*)([\w.@/-]+)")


def command_again(manifest: Manifest, cell: PlannedCell) -> str:
    """Return the command that measures this setting alone, in a sweep of its own; the cell's name stays the same.

    The overrides of the axes give way to this setting's values. No baseline is named, because only one setting is left.
    Where versions are compared, all of them are measured.
    """
    signs = {key: sign for sign, key in map(_parts, manifest.overrides)}
    kept = [one for one in manifest.overrides if _parts(one)[1] not in manifest.axes]
    kept = [one for one in kept if _parts(one)[1].partition(".")[0] != "baseline"]
    values = [f"{signs.get(key, '')}{key}={_override(value)}" for key, value in without_version(cell.axes).items()]
    words, alone = words_for(manifest.compared, exactly=True), [] if manifest.compared else ["baseline=null"]
    name = f"{manifest.sweep}-{cell.name[:6]}"
    return shlex.join(["accelsweep", *words, *kept, *values, *alone, "--name", name, *manifest.submitted_with])


def _parts(override: str) -> tuple[str, str]:
    """Return the sign before an override's key, such as `+`, and the key."""
    found = _KEY.match(override)
    return (found[1], found[2]) if found else ("", override)


def _override(value: Any) -> str:
    """Return a value as Hydra's grammar takes it: text with other signs in quotes."""
    text = as_typed(value)
    if not isinstance(value, str) or _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def trainer_call(config: CellConfig) -> str | None:
    """Return `Trainer(accelerator="cpu", devices=1, precision="32-true")`; None where no Trainer is at work."""
    if config.loop != "lightning" or config.task == "boosting":
        return None
    arguments: dict[str, Any] = {"accelerator": config.accelerator, "devices": config.devices}
    arguments |= {"num_nodes": config.num_nodes} if config.num_nodes > 1 else {}
    arguments["precision"] = config.precision
    own = {key: value for key, value in config.trainer.items() if key not in DEFAULTS or value != DEFAULTS[key]}
    return _call("Trainer", arguments | own)


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_python(value)}' for key, value in arguments.items())})"


def _python(value: Any) -> str:
    """Return a value of a config as Python; a node with a class becomes its call."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping) and "_target_" in value:
        own = {key: item for key, item in value.items() if not str(key).startswith("_")}
        return _call(str(value["_target_"]).rpartition(".")[2], own)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_python, value)) + "]"
    return repr(value)
