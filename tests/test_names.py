"""One word, one thing: what the source calls by one name is one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import accelsweep

ROOT = Path(accelsweep.__file__).parent


def public_classes() -> dict[str, list[str]]:
    """Return the files in which each public name of a type is defined, by a class or as another name of a type."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
            for name in filter(_is_of_a_type, _assigned(node)):
                found[name].append(str(path.relative_to(ROOT)))
    return found


def _is_of_a_type(name: str) -> bool:
    return name[0].isupper() and not name.isupper()


def _assigned(node: ast.stmt) -> set[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def public_constants() -> dict[str, list[str]]:
    """Return the files in which each public constant is assigned."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            for name in _assigned(node):
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


SAME_TYPES = {"Array": "an array of numpy's numbers", "Key": "any type of keys, within one function"}
"""Names of types in several files -> why each reader knows which is meant."""


def test_the_public_name_of_a_type_is_used_once() -> None:
    classes = public_classes()
    assert len(classes) > 400
    twice = {name: files for name, files in classes.items() if len(files) > 1}
    assert twice.keys() == SAME_TYPES.keys(), twice


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
