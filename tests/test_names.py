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


def test_a_public_class_name_is_used_once() -> None:
    classes = public_classes()
    assert len(classes) > 100
    assert {name: files for name, files in classes.items() if len(files) > 1} == {}


def test_a_folder_is_one_room_and_no_warehouse() -> None:
    """About fifteen files a folder; `core` has more, because each of the things that it defines has a file."""
    counts = {folder: len([*folder.glob("*.py")]) for folder in {path.parent for path in ROOT.rglob("*.py")}}
    assert {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_FILES} == {}


MOST_FILES = 21
