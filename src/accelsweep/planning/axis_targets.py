"""Where an axis goes in a training script without a Lightning Trainer: an option, flags, or an environment variable."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelsweep.devices.kinds import KINDS
from accelsweep.planning.entry_point import Launcher, option_for

VARIABLE = "env."
"""Prefix of targets in `accelsweep.yaml` that are environment variables."""


@dataclass(frozen=True)
class AxisTarget:
    """Where an axis goes: to the project's config key or option `key`, or to the environment variable `variable`.

    If both are None, no single argument sets the axis, and `how` says what does. `added` is True if the project's
    config lacks the key, so that Hydra must be told to add it. `values` maps the axis's values to the project's own, or
    to flags if there is neither key nor variable; None passes every value as it is.
    """

    key: str | None = None
    variable: str | None = None
    how: str = ""
    added: bool = False
    values: Mapping[str, Any] | None = None

    @property
    def name(self) -> str | None:
        """The key, or the variable with its prefix, as written in `accelsweep.yaml`; None if there is neither."""
        return self.key if self.variable is None else VARIABLE + self.variable

    @property
    def names(self) -> list[str]:
        """The name, or the words of the flags without their dashes and values."""
        if self.name is not None:
            return [self.name]
        words = (word for flags in (self.values or {}).values() for word in shlex.split(flags))
        return sorted({word.lstrip("-").partition("=")[0] for word in words})

    @property
    def description(self) -> str:
        """What sets the axis."""
        if self.key is None and self.variable is None and self.values is not None:
            return "flags: " + ", ".join(f"{value}: {words or 'none'}" for value, words in self.values.items())
        return self.name or self.how


_LIGHTNING_ACCELERATORS = {"cuda": "gpu", "rocm": "gpu"}
"""Device kinds -> Lightning's names for them."""

_KINDS = (*dict.fromkeys((*KINDS, *_LIGHTNING_ACCELERATORS)),)
"""All device kinds, including those for which this environment's torch was not built."""

_TORCH_DEVICES = {"rocm": "cuda"}
"""The same for torch."""

_OPTIONS: Mapping[str, Sequence[str]] = {
    "batch_size": ("batch_size", "per_device_train_batch_size", "train_batch_size", "bs"),
    "accelerator": ("accelerator", "device"),
    "devices": (),
    "num_nodes": (),
    "precision": ("precision", "mixed_precision", "dtype"),
}
"""Axis -> options that may set it. None sets the ranks, which are started for the script."""

_RANK_OPTIONS: Mapping[str, Sequence[str]] = {"devices": ("devices", "gpus"), "num_nodes": ("num_nodes",)}
"""The same for the ranks of a script that starts them itself."""

_CPU_FLAGS = ("no-cuda", "no-accel", "use-cpu", "cpu")
_GPU_FLAGS = ("accel", "cuda", "use-cuda", "gpu")
"""Flags that keep a script on the CPU, and flags without which it stays there."""

_PRECISION_FLAGS = (("bf16-mixed", "bf16"), ("16-mixed", "fp16"))
"""Precisions and the names of the flags that usually select them."""

_PRECISION_WORDS = (
    {"32-true": "no", "bf16-mixed": "bf16", "16-mixed": "fp16"},
    {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"},
    {"32-true": "fp32", "bf16-mixed": "bf16", "16-mixed": "fp16"},
    {name: name for name in ("32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true")},
)
"""Precisions in the words of Accelerate, torch, many scripts, and Lightning."""

_FABRIC = {
    "accelerator": AxisTarget(
        variable="LT_ACCELERATOR", values={kind: _LIGHTNING_ACCELERATORS.get(kind, kind) for kind in _KINDS}
    ),
    "devices": AxisTarget(variable="LT_DEVICES"),
    "num_nodes": AxisTarget(variable="LT_NUM_NODES"),
    "precision": AxisTarget(variable="LT_PRECISION"),
}

_LAUNCHER_VARIABLES: Mapping[Launcher, Mapping[str, AxisTarget]] = {
    "fabric": _FABRIC,
    "fabric_run": _FABRIC,
    "accelerate": {
        "accelerator": AxisTarget(
            variable="ACCELERATE_USE_CPU", values={**dict.fromkeys(_KINDS, "false"), "cpu": "true"}
        ),
        "precision": AxisTarget(variable="ACCELERATE_MIXED_PRECISION", values=_PRECISION_WORDS[0]),
    },
}
"""The variables by which the launchers of Fabric and Accelerate pass their arguments on to a script."""


def device_name(kind: str, argument: str) -> str:
    """Return what a device kind is called by an argument: Lightning's name for `accelerator`, torch's for any other."""
    names = _LIGHTNING_ACCELERATORS if argument.rpartition(".")[2] == "accelerator" else _TORCH_DEVICES
    return names.get(kind, kind)


def launcher_variables(launcher: Launcher | None) -> dict[str, str]:
    """Return the variables that a launcher sets in any case."""
    return {"LT_CLI_USED": "1"} if launcher == "fabric_run" else {}


def script_target(
    axis: str,
    options: Mapping[str, Any],
    given: Mapping[str, Any],
    launcher: Launcher | None,
    *,
    starts_ranks: bool = False,
) -> AxisTarget | None:
    """Return where an axis goes, or None if that cannot be told.

    `options` are the script's, with their defaults; `given` maps values of the axis to the project's own, as stated in
    `accelsweep.yaml`; `launcher` is the library whose launcher can start the script. `starts_ranks` says whether the
    script starts its ranks itself.
    """
    if given and all(words == "" or str(words).startswith("-") for words in given.values()):
        return AxisTarget(values=given)
    flags = {} if given else _flags(axis, options)
    if flags:
        return AxisTarget(values=flags)
    names = {**_OPTIONS, **_RANK_OPTIONS} if starts_ranks else _OPTIONS
    option = option_for(options, *names[axis])
    if option is not None:
        words = _words(axis, option, options[option])
        if axis != "precision" or words or given:
            return AxisTarget(option, values={**words, **given} or None)
    variables = {} if launcher is None else _LAUNCHER_VARIABLES[launcher]
    if axis in variables:
        return variables[axis]
    if axis in ("batch_size", "precision"):
        return None
    return AxisTarget(
        how="determines the devices that the script sees" if axis == "accelerator" else "determines the ranks"
    )


def _flags(axis: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the flags that are known to set the values of an axis, by value."""
    if axis == "precision":
        found = {word: f"--{name}" for word, name in _PRECISION_FLAGS if options.get(name, "") is False}
        return {"32-true": "", **found} if found else {}
    flags = {name: default for name, default in options.items() if default is False or default is None}
    if axis == "accelerator" and (name := option_for(flags, *_CPU_FLAGS)) is not None:
        return {**dict.fromkeys(_KINDS, ""), "cpu": f"--{name}"}
    if axis == "accelerator" and (name := option_for(flags, *_GPU_FLAGS)) is not None and flags[name] is False:
        return {**dict.fromkeys(_KINDS, f"--{name}"), "cpu": ""}
    return {}


def _words(axis: str, option: str, default: Any) -> Mapping[str, str]:
    """Return an option's own words for the values of an axis; empty if they are unknown or the same."""
    if axis == "accelerator":
        return {kind: device_name(kind, option) for kind in _KINDS}
    if axis == "precision":
        return next((words for words in _PRECISION_WORDS if default in words.values()), {})
    return {}
