"""Terminal output is never truncated, and text from configs, labels and reasons cannot control a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import accelsweep
from accelsweep.driver.console import Listing, Styled, Tone, say, show
from accelsweep.significant_digits import approximate_duration, escaped

SOURCES = Path(accelsweep.__file__).parent
HOSTILE = "\x1b[2J\x1b]0;title\x07\r\x9b1m\u202e\udc80"


def test_control_characters_are_escaped(capsys):
    say(f"a{HOSTILE}b\tc\nd")
    shown = r"a\x1b[2J\x1b]0;title\x07\r\x9b1m\u202e\udc80b" + "\tc\nd\n"
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("width", ["120", "20"])
@pytest.mark.parametrize("text", ["[/foo]", "[bold]x", "[link=file:///etc]x[/link]", ":smile:"])
def test_markup_in_titles_headings_and_cells_is_text(text, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    show(Listing(f"t {text}", ("name", f"h{text}"), ((f"c {text}", f"v {text}"), ("long " * 5, "long " * 40))))
    shown = re.sub(r"\s", "", capsys.readouterr().out)
    assert all(f"{place}{text}" in shown for place in "thcv")


@pytest.mark.parametrize("width", ["120", "20"])
def test_control_characters_in_a_table_are_escaped(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    show(Listing("t", ("c", "d"), ((HOSTILE, HOSTILE), ("", "long " * 40))))
    assert escaped(shown := capsys.readouterr().out) == shown


WIDE = Listing(
    "results",
    ("setting", "samples/s", "verdict", "doubts"),
    (
        ("batch 32, 32-bit, 1 process", "15,132 [13,773, 16,625]", "baseline", "unsteady_window, busy_cpu"),
        (
            "32-bit, 2 processes, " + "width=64, " * 9,
            "9,559 [9,001, 10,152]",
            Styled("slower", Tone.bad),
            "-",
        ),
    ),
    numbers=("samples/s",),
)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 99, 100, 120, 300])
def test_no_width_truncates_a_word_of_a_table(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    show(WIDE)
    shown = capsys.readouterr().out
    texts = [item.text if isinstance(item, Styled) else item for row in WIDE.rows for item in row]
    missing = [word for word in " ".join([*texts, *WIDE.headings[1:]]).split() if word not in shown]
    assert missing == []
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width


def test_rows_are_stacked_if_a_table_does_not_fit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    show(
        Listing(
            "t", ("setting", "", "rate"), (("a", "baseline", "12 [11, 13] and so on, and so forth"), ("b", "", "2"))
        )
    )
    assert capsys.readouterr().out == (
        "t\na\n  baseline\n  rate  12 [11, 13] and so on, and so\n        forth\nb\n  rate  2\n"
    )


@pytest.mark.parametrize(("width", "is_table"), [("40", False), ("59", False), ("60", True)])
def test_a_narrow_terminal_stacks_even_a_small_table(width, is_table, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", width)
    show(Listing("a-title-that-is-wider-than-its-table", ("setting", "rate"), (("a", "1"), ("b", "2"))))
    shown = capsys.readouterr().out
    assert ("│ a       │ 1    │" in shown) is is_table
    assert ("a-title-that-is-wider-than-its-table\na\n  rate  1\n" in shown) is not is_table


def test_a_word_longer_than_a_line_is_not_broken(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    long = "sweeps/quickstart/runs/ad6e3bc83738-r0"
    show(Listing(long, ("setting", "folder"), ((f"{long} x", f"in {long} there"),)))
    assert capsys.readouterr().out == f"{long}\n{long}\nx\n  folder\n    in\n    {long}\n    there\n"


def in_a_terminal(code, width, **variables):
    """Return what Python prints on a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", "PYTHONUTF8": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # Linux' end of a terminal that nobody writes to any more
        while read := os.read(master, 65536):
            said += read
    os.close(master)
    assert done.returncode == 0, said
    return said.decode().replace("\r\n", "\n")


SHOW_A_VERDICT = """
from accelsweep.driver.console import Listing, Styled, show
from accelsweep.driver.console import Tone
show(Listing("t", ("setting", "verdict"), (("a", Styled("faster", Tone.good)),)))
"""


def test_a_terminal_shows_colour_symbol_and_word_of_a_verdict():
    assert "\x1b[32m▲ faster" in in_a_terminal(SHOW_A_VERDICT, 80)


def test_no_color_keeps_symbol_and_word():
    shown = in_a_terminal(SHOW_A_VERDICT, 80, NO_COLOR="1")
    assert "▲ faster" in shown
    assert "\x1b[3" not in shown


def test_a_terminal_without_unicode_shows_the_word_alone():
    shown = in_a_terminal(SHOW_A_VERDICT, 80, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert "faster" in shown
    assert "▲" not in shown


def test_a_file_contains_the_word_alone(capsys):
    show(Listing("t", ("setting", "verdict"), (("a", Styled("faster", Tone.good)),)))
    shown = capsys.readouterr().out
    assert "│ faster" in shown
    assert "\x1b" not in shown


def test_a_dense_table_wraps_names_and_stacks_nothing_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name, run = "cpu x1 | 32-true | batch 128 | width 256", "c485c70eaf17-r0"
    rows = ((name, "out_of_memory", "12,548", "short_window", run), (name, "measured", "7,331", "", run))
    show(Listing("runs", ("setting", "outcome", "samples/s", "doubts", "run"), rows, dense=True))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert {line.index(run) for line in lines if run in line} == {lines[1].index("run")}
    assert "│" not in "".join(lines)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "10 seconds"),
        (11, "20 seconds"),
        (90, "90 seconds"),
        (91, "2 minutes"),
        (200, "3 minutes"),
        (5400, "90 minutes"),
        (5401, "2 hours"),
    ],
)
def test_durations_are_rounded_to_a_natural_unit(seconds, words):
    assert approximate_duration(seconds) == words


def test_commands_print_through_the_console_only():
    """Print with driver/console.py. Only the progress bar and the line after Ctrl-C do it themselves."""
    files = [path for package in ("cli", "driver") for path in (SOURCES / package).rglob("*.py")]
    found = {
        (path.name, line.strip())
        for path in files
        for line in path.read_text().splitlines()
        if re.search(r"typer\.echo|\.print\(|add_row\(", line) and "escaped(" not in line
    }
    assert found <= {
        ("typer_app.py", 'typer.echo(f"accelsweep {__version__}")'),
        ("console.py", "terminal.print(table)"),
        ("console.py", "terminal.print(Text(prefix).append(line), soft_wrap=True)"),
        ("console.py", "table.add_row(*(_text(item, terminal) for item in row))"),
    }
