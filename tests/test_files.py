"""Files are replaced atomically, set aside instead of overwritten, and respect the umask; log tails mask secrets."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from accelsweep.files import exclusive_lock, open_temporary, set_aside, sha256_file, tail_lines, write_bytes_atomically


def test_a_failed_write_leaves_the_old_file_and_no_temporary_file(tmp_path, monkeypatch):
    path = tmp_path / "note.json"
    path.write_bytes(b"old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_bytes_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_files_are_set_aside_under_new_names_and_never_overwritten(tmp_path):
    path = tmp_path / "record.json"
    for content in ("first", "second"):
        path.write_text(content)
        set_aside(path)
    assert not path.exists()
    assert (tmp_path / "record.json.damaged-1").read_text() == "first"
    assert (tmp_path / "record.json.damaged-2").read_text() == "second"


@pytest.mark.parametrize(
    ("umask", "mode", "expected"),
    [(0o002, 0o666, 0o664), (0o022, 0o666, 0o644), (0o077, 0o666, 0o600), (0o000, 0o600, 0o600)],
)
def test_permissions_follow_the_umask(umask, mode, expected, tmp_path):
    before = os.umask(umask)
    try:
        write_bytes_atomically(tmp_path / "own.json", b"x", mode)
        descriptor, temporary = open_temporary(tmp_path / "sweep.zip", mode)
        os.close(descriptor)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "own.json", temporary)] == [expected, expected]


@pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")
def test_a_default_acl_of_the_folder_overrides_the_umask(tmp_path):
    set_acl = ["setfacl", "--default", "--modify", "group::rw", str(tmp_path)]
    if subprocess.run(set_acl, check=False, capture_output=True).returncode:
        pytest.skip("this disk has no ACLs")
    before = os.umask(0o022)
    try:
        write_bytes_atomically(tmp_path / "own.json", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "own.json").stat().st_mode) & 0o060 == 0o060


def test_a_checksum_is_that_of_all_bytes(tmp_path):
    content = os.urandom(3 * 2**20 + 1)
    (tmp_path / "file").write_bytes(content)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()


def test_an_exclusive_lock_is_per_purpose_and_path_and_released_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELSWEEP_LEASES", str(tmp_path / "leases"))
    with exclusive_lock("versions", tmp_path), exclusive_lock("worktrees", tmp_path):
        pass
    with exclusive_lock("versions", tmp_path):
        assert len(list((tmp_path / "leases").iterdir())) == 2


def test_tail_lines_returns_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n\nthree\n")
    assert tail_lines(log) == ["one", "two", "", "three"]
    assert tail_lines(log, 2) == ["", "three"]


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 10**6 + b"\nlast\n")
    assert tail_lines(log, max_bytes=8) == ["xx", "last"]


def test_an_open_file_is_read_regardless_of_its_position(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo\n")
    with (tmp_path / "log").open("rb") as file:
        file.read()
        assert tail_lines(file) == ["one", "two"]


def test_invalid_bytes_and_secrets_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe to mysql://me:hush@host\n")
    assert tail_lines(tmp_path / "log") == ["\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} to mysql://***@host"]


def test_an_unreadable_log_has_no_lines(tmp_path: Path) -> None:
    assert tail_lines(tmp_path / "none") == tail_lines(tmp_path) == []
