"""Hydra's own options, which its users try: what to write instead of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelsweep.base.errors import InputError

_NO_MULTIRUN = "a sweep needs no such option: several values of a key make it, batch_size=32,64"
_ONE_CONFIG = "the config is accelsweep's: keys and groups of your own lie in conf/, experiments in conf/experiment/"
_SHOW = "write --cfg job; interpolations are shown as they are written"
OPTIONS: Mapping[str, str] = {
    "-m": _NO_MULTIRUN,
    "--multirun": _NO_MULTIRUN,
    "-r": "`accelsweep run` is the command itself",
    "--run": "`accelsweep run` is the command itself",
    "-c": "write --cfg job",
    "--resolve": _SHOW,
    "-p": _SHOW,
    "--package": _SHOW,
    "-i": _SHOW,
    "--info": _SHOW,
    "-cp": _ONE_CONFIG,
    "--config-path": _ONE_CONFIG,
    "-cn": _ONE_CONFIG,
    "--config-name": _ONE_CONFIG,
    "-cd": _ONE_CONFIG,
    "--config-dir": _ONE_CONFIG,
}
"""Hydra's options -> what to do here."""


def refuse_options(arguments: Sequence[str]) -> None:
    """Raise InputError for an option of Hydra's among a command's arguments, with what to write instead."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in OPTIONS:
            raise InputError(f"{name} is an option of Hydra's: {OPTIONS[name]}")
        if name == "--":
            return
