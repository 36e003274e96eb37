"""Whatever a config, a label or a reason holds, a terminal shows it and obeys none of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import accelsweep
from accelsweep.base.terminal import escaped
from accelsweep.drive.console import new_table, plain, say, show

SOURCES = Path(accelsweep.__file__).parent
HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x9b1m\u202e\udc80"


def test_characters_that_a_terminal_obeys_are_shown_as_escapes(capsys):
    say(f"a{HOSTILE}b\tc\nd")
    shown = r"a\x1b[2J\x1b]0;title\x07\r\x9b1m\u202e\udc80b" + "\tc\nd\n"
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("text", ["[/foo]", "[bold]x", "[link=file:///etc]x[/link]", ":smile:"])
def test_markup_in_a_title_a_heading_or_a_cell_is_text(text, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    table = new_table(f"title {text}")
    table.add_column(plain(f"heading {text}"))
    table.add_row(plain(f"cell {text}"))
    show(table)
    shown = capsys.readouterr().out
    assert all(f"{place} {text}" in shown for place in ("title", "heading", "cell"))


def test_a_table_cell_obeys_no_control_character(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    table = new_table("t")
    table.add_column("c")
    table.add_row(plain(HOSTILE))
    show(table)
    assert escaped(shown := capsys.readouterr().out) == shown


def test_commands_print_in_no_other_way():
    """Where this fails, print with drive/console.py; a progress bar and the last line do it themselves."""
    files = [*SOURCES.glob("commands/*.py"), *SOURCES.glob("drive/*.py"), SOURCES / "cli.py"]
    found = {
        (path.name, line.strip())
        for path in files
        for line in path.read_text().splitlines()
        if re.search(r"typer\.echo|\.print\(|add_row\((?!plain|\*map\(plain)", line) and "escaped(" not in line
    }
    assert found <= {
        ("cli.py", 'typer.echo(f"accelsweep {__version__}")'),
        ("console.py", "console().print(table)"),
        ("plan.py", 'shown.add_row(f"... and {len(table.cells) - _MOST_ROWS} more", "", "", "")'),
        ("claims.py", 'table.add_row(sweep, "", "-", "-", plain(f"not run: {why_not[sweep]}"), "-")'),
    }
