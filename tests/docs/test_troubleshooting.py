"""The page of symptoms names commands, options and keys that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("generators")]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md").read_text()


def test_every_command_and_option_exists():
    import typer
    from typer.core import TyperGroup

    from accelsweep.cli.typer_app import app

    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    named = re.findall(r"\baccelsweep ([a-z]+)", re.sub(r"^#.*$|```", "", PAGE, flags=re.MULTILINE))
    assert len(named) > 10
    context = typer.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    assert set(re.findall(r"`accelsweep ([a-z]+)", PAGE)) <= commands.keys()
    options = {option for command in commands.values() for one in command.params for option in one.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) <= options


def test_every_key_exists():
    import config_keys

    keys = set(re.findall(r"`((?:limits|measure|analysis|report|site|prices)\.[a-z_.]+)", PAGE))
    assert {"limits.silence_seconds", "limits.free_disk_bytes"} <= keys
    assert keys <= config_keys.known()


def test_the_messages_that_it_quotes_are_said():
    sources = "".join(
        path.read_text() for path in (Path(__file__).resolve().parents[2] / "src" / "accelsweep").rglob("*.py")
    )
    for words in ("is already being run by process", "MB free", "unknown key", "already exists"):
        assert words in PAGE
        assert words in sources, words
