"""One word, one thing: what the source calls by one name is one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import accelsweep

ROOT = Path(accelsweep.__file__).parent


def public_classes() -> dict[str, list[str]]:
    """Return the files in which each public class name is defined."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def public_constants() -> dict[str, list[str]]:
    """Return the files in which each public constant is assigned."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            for name in {*names}:
                if name.isupper() and not name.startswith("_"):
                    found[name].append(str(path.relative_to(ROOT)))
    return found


ALIKE = {"COLUMNS": "each figure's own columns", "AUTO": "`auto`, as the value of two keys of workloads"}
"""Constants of one name in several files -> why each reader knows which is meant."""


def test_the_name_of_a_public_constant_is_used_once() -> None:
    constants = public_constants()
    assert len(constants) > 300
    assert {name for name, files in constants.items() if len(files) > 1} == ALIKE.keys(), {
        name: files for name, files in constants.items() if len(files) > 1
    }


def test_a_public_class_name_is_used_once() -> None:
    classes = public_classes()
    assert len(classes) > 100
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}


MOST_FILES = 15

FULLER = {
    "commands": "one module a command",
    "rank/loops": "a shipped config names one of them by its path, which is part of a setting's identity",
    "report": "page and Markdown share all the rest",
    "state": "one file for each kind of file of a sweep",
    "workloads": "configs name them by their paths, which are part of a setting's identity",
}
"""Folders with more than `MOST_FILES` -> why their files stay beside each other."""


def test_a_folder_is_one_room_and_no_warehouse() -> None:
    counts = {folder: len([*folder.glob("*.py")]) for folder in {path.parent for path in ROOT.rglob("*.py")}}
    full = {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_FILES}
    assert full.keys() == FULLER.keys(), full
    assert max(full.values()) <= 20
