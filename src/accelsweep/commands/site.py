"""`accelsweep site`: draft the file of a cluster, for its user to read and complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from accelsweep.base.errors import InputError
from accelsweep.core.sites.site import Site
from accelsweep.drive.terminal.console import say
from accelsweep.engines.grid_engine.draft import draft as from_grid_engine
from accelsweep.engines.slurm.draft import draft as from_slurm

_DRAFTS: dict[str, Callable[[str], str]] = {"slurm": from_slurm, "grid_engine": from_grid_engine}


def write_draft(home: Path, name: str, engines: Sequence[str]) -> None:
    """Write `conf/site/NAME.yaml` below `home`, drafted from the one engine that `engines` name.

    Raises InputError where it is there, or not one engine is named, AccelsweepError where that does not answer.
    """
    if len(engines) != 1:
        ways = " or ".join(f"--from-{engine.replace('_', '-')}" for engine in _DRAFTS)
        raise InputError(f"say what to draft the site from: accelsweep site NAME {ways}")
    (engine,) = engines
    if re.fullmatch(r"[A-Za-z0-9_-]+", name) is None:
        raise InputError(f"'{name}' is no name of a site: letters, digits, '_' and '-' make one")
    file = home / "conf" / "site" / f"{name}.yaml"
    if file.exists():
        raise InputError(f"{file.relative_to(home)} is there already, and is left alone: choose another name")
    text = _DRAFTS[engine](name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    say(f"{file.relative_to(home)} is a draft that runs as it is; models, prices and scratch are yours to add. Try it:")
    say(f"accelsweep doctor site={name}")
    command = shlex.join(["experiment=quickstart", f"site={name}", "--profile", engine, *accelerators(text)])
    say(f"accelsweep plan {command}")
    say(f"accelsweep run {command}")


def accelerators(text: str) -> list[str]:
    """Return the overrides by which the quickstart measures each kind of node that this site file has.

    The CPU baseline goes to nodes without GPUs where there are any.
    """
    kinds = Site.model_validate(yaml.safe_load(text)).kinds
    having = [kind.name for kind in kinds if any(device.accelerator == "cuda" for device in kind.inventory)]
    alone = [kind.name for kind in kinds if kind.name not in having]
    cpu = "cpu" if len(alone or kinds) == 1 else f"cpu:{(alone or having)[0]}"
    gpus = ["cuda"] if len(having) == 1 else [f"cuda:{name}" for name in having]
    baseline = [] if cpu == "cpu" else [f"baseline.accelerator={cpu}"]
    return [f"accelerator={','.join([cpu, *gpus])}", *baseline]
