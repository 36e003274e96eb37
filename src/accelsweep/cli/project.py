"""Commands for the user's own project: `apply` writes a recommendation into it; `init` writes its accelsweep.yaml."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from accelsweep.driver.console import say
from accelsweep.errors import InputError
from accelsweep.files import write_bytes_atomically
from accelsweep.planning.axis_targets import AxisTarget
from accelsweep.planning.entry_point import PROJECT_FILE, Project, project_in
from accelsweep.planning.project_config import ProjectConfigs
from accelsweep.planning.project_overrides import DEFAULT_MINUTES, ProjectGrid
from accelsweep.planning.source_digests import script_file
from accelsweep.records.findings import Choice, Findings
from accelsweep.records.layout import existing_sweep
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import block_of
from accelsweep.run_config import ENTRY_AXES, EntryPoint


def apply_recommendation(home: Path, name: str, *, force: bool = False) -> None:
    """Write the recommended setting of a sweep into the project, or print the command to run.

    A Hydra project gets an overlay in its `experiment` group, and a LightningCLI project gets a config file. Raises
    InputError if the sweep does not measure the user's own script or recommends nothing, or if the file exists and
    `force` is not set.
    """
    folder = existing_sweep(home, name)
    manifest = Manifest.read(folder.manifest)
    if manifest.entry is None:
        raise InputError(f"{name} does not measure a training script of your own, so there is nothing to apply")
    if not folder.findings.is_file():
        raise InputError(f"{name} has no findings yet: measure it with accelsweep run")
    choice = Findings.read(folder.findings).recommendation.choice
    if choice is None:
        raise InputError(f"{name} recommends no setting; its report says why: {folder.page}")
    entry = block_of(folder, manifest, choice.setting).configs[choice.setting].entry
    assert entry is not None, "a setting of a sweep of the user's own script"
    if entry.kind in ("script", "command") or not entry.arguments:
        say(f"{choice.sentence}\nnow: {entry.shell_command}")
        if entry.trainer_call:
            say(f"and in the script: {entry.trainer_call}")
        return
    target = _target(home, name, entry)
    if target.exists() and not force:
        raise InputError(f"{target} exists and was left unchanged: --force overwrites it")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomically(target, _overlay(name, choice, entry).encode())
    say(f"wrote {target.relative_to(home) if target.is_relative_to(home) else target}")
    option = f"experiment={target.stem}" if entry.kind == "hydra" else f"--config {target.relative_to(home)}"
    say(f"now: {shlex.join(['python', *entry.command])} {option}")


def _written_values(entry: EntryPoint) -> tuple[dict[str, str], list[Any]]:
    """Return the values in a setting's arguments by dotted key, and the entries for Hydra's defaults list.

    Raises InputError for an argument that deletes a key, which a config file cannot do.
    """
    values: dict[str, str] = {}
    defaults: list[Any] = []
    for argument in entry.arguments:
        if argument.startswith("~"):
            raise InputError(f"a config file cannot contain {argument}; type it instead: {entry.shell_command}")
        key, _, value = argument.lstrip("+-").partition("=")
        is_choice = "/" in key or ("." not in key and isinstance((entry.config or {}).get(key, {}), Mapping))
        if entry.kind != "hydra" or not is_choice:
            values[key] = value
        elif key == "experiment":
            defaults.insert(0, value)
        else:
            group = f"/{key}" if argument.startswith("+") else f"override /{key}"
            defaults.append({group: None if value == "null" else value})
    return values, defaults


def _target(home: Path, name: str, entry: EntryPoint) -> Path:
    if entry.kind == "lightning_cli":
        return home / f"accelsweep-{name}.yaml"
    return _hydra_config_folder(home, entry) / "experiment" / f"accelsweep-{name}.yaml"


def _hydra_config_folder(home: Path, entry: EntryPoint) -> Path:
    """Return the folder that the script passes to `hydra.main`. Raises InputError if it is not a constant."""
    script = script_file(home, entry.command)
    if script is not None:
        for node in ast.walk(ast.parse(script.read_bytes())):
            for decorator in getattr(node, "decorator_list", []):
                for keyword in getattr(decorator, "keywords", []):
                    if keyword.arg == "config_path" and isinstance(keyword.value, ast.Constant):
                        return (script.parent / str(keyword.value.value)).resolve()
    raise InputError(f"{shlex.join(entry.command)} does not pass hydra.main a constant config_path")


def _overlay(name: str, choice: Choice, entry: EntryPoint) -> str:
    values, defaults = _written_values(entry)
    tree: dict[str, Any] = {"defaults": [*defaults, "_self_"]} if defaults else {}
    for key, value in values.items():
        *parents, leaf = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = yaml.safe_load(value)
    first = "# @package _global_\n" if entry.kind == "hydra" else ""
    when = datetime.now(tz=UTC).date().isoformat()
    return f"{first}# accelsweep, {when}, sweep {name}: {choice.sentence}\n{yaml.safe_dump(tree, sort_keys=False)}"


# `accelsweep init` in a folder with a project.


def describe_project(home: Path) -> bool:
    """Write a commented `accelsweep.yaml` for the project in `home`; return False if there is no training script.

    Raises InputError if the file exists, or if there are several scripts.
    """
    path = home / PROJECT_FILE
    if path.exists():
        raise InputError(f"{path} exists and was left unchanged; now: accelsweep run")
    project = project_in(home, None, required=False)
    if project is None:
        return False
    with ProjectConfigs.of(project, {}) as configs:
        sides = ProjectGrid(project, configs, DEFAULT_MINUTES)
        text = _description(project, sides)
    write_bytes_atomically(path, text.encode())
    say(f"wrote {path.name}: {project.note()}")
    say("now: accelsweep run")
    return True


def _description(project: Project, sides: ProjectGrid) -> str:
    lines = [
        "# How accelsweep runs this project. Every key is optional; commented-out lines are defaults or examples.",
        f"entry: {project.command}",
        f"# python: {project.python}",
    ]
    named = [
        axis for axis, target in sides.targets.items() if isinstance(target, AxisTarget) and target.name is not None
    ]
    lines.append("axes:  # where each axis goes" if named else "axes: {}  # where each axis goes")
    for axis in ENTRY_AXES:
        target = sides.targets[axis]
        if isinstance(target, str):
            lines.append(f"  # {axis}: write the project's own key here")
        else:
            lines.append(f"  {'# ' if target.name is None else ''}{axis}: {target.description}")
    lines.append("# values: {precision: {bf16-mixed: bf16}}  # accelsweep's name: yours")
    if sides.quality is not None:
        lines.append(f"quality: {{metric: {sides.quality.metric}, better: {sides.quality.better}}}")
    else:
        lines.append("# quality: {metric: val_acc, better: max}  # a metric that your validation logs")
    lines.append("# batch_is: per_device  # or global, if the batch is divided among the ranks; a trial detects it")
    lines.append("# samples_per_step: batch_size  # only if the samples in a batch cannot be counted")
    return "\n".join(lines) + "\n"
