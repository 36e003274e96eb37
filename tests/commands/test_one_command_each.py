"""Each module directly in `commands/` is one command, and no command is built on another one's module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import typer

import accelsweep
from accelsweep import commands
from accelsweep.cli import app

SOURCE = Path(accelsweep.__file__).parent
FOLDER = Path(commands.__file__).parent
PACKAGE = commands.__name__
COMMANDS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def imported(path: Path) -> Iterator[str]:
    """Yield the full names that a file imports anywhere in it, those of modules and those that it takes out of them."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import is not read here"
            yield str(node.module)
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_each_module_is_a_command_of_the_command_line() -> None:
    named = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {"ab", "fleet", "project"} <= set(COMMANDS) <= set(named)


def test_no_module_of_commands_imports_a_command() -> None:
    """What several share lies in a folder, or below `commands`; only the command line and notebooks name commands."""
    taken = {f"{PACKAGE}.{name}" for name in COMMANDS}
    files = sorted(FOLDER.rglob("*.py"))
    found = {str(path.relative_to(FOLDER)): sorted(taken.intersection(imported(path))) for path in files}
    assert sum(len([*imported(path)]) for path in files) > 100
    assert {path: names for path, names in found.items() if names} == {}


def test_nothing_but_the_command_line_itself_imports_the_words_of_its_commands() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    found = {str(path.relative_to(SOURCE)) for path in files if "accelsweep.cli.commands" in imported(path)}
    assert found == {"cli/__init__.py"}
