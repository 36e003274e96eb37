"""The end of a log, whatever is in it."""

from __future__ import annotations

from pathlib import Path

from accelsweep.files import tail_lines


def test_the_last_lines_are_those_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n\nthree\n")
    assert tail_lines(log) == ["one", "two", "", "three"]
    assert tail_lines(log, 2) == ["", "three"]


def test_of_a_long_log_the_end_alone_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10**6 + b"\nlast\n")
    assert tail_lines(log, max_bytes=8) == ["xx", "last"]


def test_an_open_file_is_read_as_well_however_far_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    with (tmp_path / "log").open("rb") as file:
        file.read()
        assert tail_lines(file) == ["one", "two"]


def test_what_is_no_text_and_what_is_secret_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe to mysql://me:hush@host\n")
    assert tail_lines(tmp_path / "log") == ["\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} to mysql://***@host"]


def test_a_log_that_cannot_be_read_has_no_lines(tmp_path: Path) -> None:
    assert tail_lines(tmp_path / "none") == tail_lines(tmp_path) == []
