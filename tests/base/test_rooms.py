"""The digest of a room's code holds all that the room can run, and the rooms stand alike wherever they are listed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import accelsweep
from accelsweep.base.rooms import FLOORS, at_or_below, code_of

PACKAGE = Path(accelsweep.__file__).parent
CONTRACTS = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]


def imported_by(room: str) -> Iterator[str]:
    for path in (PACKAGE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from (name.split(".")[1] for name in names if name.startswith("accelsweep."))


@pytest.mark.parametrize("room", ["analyse", "report", "supervise"])
def test_every_room_that_a_room_runs_by_itself_or_through_others_is_in_its_digest(room: str) -> None:
    reached = [room]
    for each in reached:
        reached.extend(sorted({*imported_by(each)} - {*reached}))
    assert {"base", "core", "machine"} < {*reached} <= {*at_or_below(room)}


def test_the_rooms_stand_in_the_order_to_which_imports_are_held() -> None:
    layers = CONTRACTS["contracts"][0]["layers"]
    assert [tuple(layer.split(" | ")) for layer in reversed(layers)] == list(FLOORS)


def test_the_page_of_the_rooms_lists_them_in_this_order() -> None:
    page = (PACKAGE.parents[1] / "docs" / "design" / "0020-rooms.md").read_text("utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert listed == [room for floor in FLOORS for room in floor if room != "__main__"]


@pytest.mark.parametrize(("edited", "changes"), [("base", True), ("plan", True), ("report", True), ("drive", False)])
def test_an_edit_changes_the_digest_of_the_rooms_above_it_alone(tmp_path: Path, edited: str, changes: bool) -> None:
    for version in ("first", "second"):
        for room in ("base", "core", "plan", "analyse", "report", "drive"):
            (tmp_path / version / room).mkdir(parents=True)
            (tmp_path / version / room / "code.py").write_text(version if room == edited else "", "utf-8")
    assert (code_of("report", tmp_path / "first") != code_of("report", tmp_path / "second")) == changes
