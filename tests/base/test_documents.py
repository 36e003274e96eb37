"""Documents are whole or they are refused; they are never half-written and never silently overwritten."""

import json
import math
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep import json_documents
from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.installation import __version__
from accelsweep.json_documents import Document, canonical_json, set_aside, write_bytes_atomically


class Note(Document):
    kind: ClassVar[str] = "note"

    text: str
    numbers: tuple[float, ...] = ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_canonical_json_of_what_was_parsed_is_the_same_text(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_hold_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"rate": value})


@given(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_document_is_read_back_equal(tmp_path_factory, text, numbers):
    path = tmp_path_factory.getbasetemp() / "note.json"
    note = Note(text=text, numbers=tuple(numbers))
    note.write(path)
    assert Note.read(path) == note


def test_what_json_does_not_know_or_is_nested_too_deeply_is_named_like_any_damage(tmp_path):
    path = tmp_path / "note.json"
    for content in ("NaN", '{"accelsweep":"note","body":{"a":Infinity}}', '{"body":1e999}', "[" * 100_000):
        path.write_text(content)
        with pytest.raises(DamagedFile, match="not a whole JSON document"):
            Note.read(path)


def test_only_a_regular_file_of_a_bounded_size_is_ever_read(tmp_path):
    """A FIFO would wait for its writer for ever, and /dev/zero never ends."""
    fifo, zeros, folder = (tmp_path / name for name in ("fifo", "zeros", "folder"))
    os.mkfifo(fifo)
    zeros.symlink_to("/dev/zero")
    folder.mkdir()
    for path in (fifo, zeros, folder):
        with pytest.raises(DamagedFile, match=f"{path.name}: it is no file: something else stands in its place"):
            Note.read(path)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(json_documents.MOST_DOCUMENT_BYTES + 1)
    with pytest.raises(DamagedFile, match="larger than 256 MiB"):
        Note.read(sparse)
    assert Note.read(written(tmp_path)).text == "seven"


def written(tmp_path: Path) -> Path:
    path = tmp_path / "note.json"
    Note(text="seven", numbers=(1.0, 2.5)).write(path)
    return path


def test_a_truncated_document_is_named_and_refused_wherever_it_was_cut(tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match=r"note\.json"):
            Note.read(path)


def test_a_flipped_bit_anywhere_is_noticed(tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes().rstrip()
    for position in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            same = Note.read(path)
        except DamagedFile:
            continue
        assert same == Note(text="seven", numbers=(1.0, 2.5)), f"bit {position} changed the contents unnoticed"


def test_a_document_of_another_kind_is_refused(tmp_path):
    class Letter(Note):
        kind: ClassVar[str] = "letter"

    with pytest.raises(DamagedFile, match="not an accelsweep letter"):
        Letter.read(written(tmp_path))


def test_a_document_of_another_format_is_refused_with_both_numbers(tmp_path):
    class Newer(Note):
        format: ClassVar[int] = 2

    with pytest.raises(DamagedFile, match="format 1; this version reads 2"):
        Newer.read(written(tmp_path))


def by_a_later_version(path, version="99.0", **changes):
    """Rewrite a note as a later version may write it: whole, with its own version, and with other values in it."""
    envelope = json.loads(path.read_text())
    body = envelope["body"] | changes
    seal = json_documents.sha256_text(canonical_json(body))
    path.write_text(json.dumps(envelope | {"version": version, "body": body, "sha256": seal}))
    return path


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [({"weather": "fine"}, "its 'weather'"), ({"numbers": ["one"]}, "its 'numbers.0'")],
)
def test_a_whole_document_that_a_later_version_wrote_is_refused_with_that_version_and_is_no_damage(
    tmp_path, changes, unknown
):
    path = by_a_later_version(written(tmp_path), **changes)
    before = path.read_bytes()
    with pytest.raises(NewerFile, match=r"install accelsweep 99\.0") as caught:
        Note.read(path)
    assert f"accelsweep 99.0 wrote it, and this is {__version__}, which does not know {unknown}" in str(caught.value)
    assert not isinstance(caught.value, DamagedFile), "what is damaged is set aside and made again"
    assert path.read_bytes() == before


def test_a_later_format_is_refused_and_names_its_version(tmp_path):
    class Older(Note):
        format: ClassVar[int] = 0

    with pytest.raises(NewerFile, match=r"which does not know format 1 of a note; install accelsweep 99\.0"):
        Older.read(by_a_later_version(written(tmp_path)))


def test_a_whole_document_with_an_unknown_key_is_not_said_to_be_later_where_that_is_not_known(tmp_path):
    with pytest.raises(NewerFile, match="another version of accelsweep wrote it"):
        Note.read(by_a_later_version(written(tmp_path), "0.0.1", weather="fine"))


def test_a_document_of_a_later_version_that_has_what_we_know_is_read(tmp_path):
    assert Note.read(by_a_later_version(written(tmp_path), text="new")).text == "new"


@pytest.mark.parametrize("version", [None, "0.0.1", __version__, "no version"])
def test_a_wrong_value_that_no_later_version_wrote_is_damage(tmp_path, version):
    with pytest.raises(DamagedFile, match="not a valid note: numbers"):
        Note.read(by_a_later_version(written(tmp_path), version, numbers=["one"]))


def test_a_document_of_a_later_version_with_a_broken_seal_is_damage(tmp_path):
    path = by_a_later_version(written(tmp_path), weather="fine")
    path.write_text(path.read_text().replace("fine", "rain"))
    with pytest.raises(DamagedFile, match="do not match its checksum"):
        Note.read(path)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = written(tmp_path)

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write_bytes_atomically(path, b"new")
    assert Note.read(path).text == "seven"
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
def test_who_else_may_read_and_write_a_document_is_decided_by_the_umask(umask, mode, expected, tmp_path):
    before = os.umask(umask)
    try:
        write_bytes_atomically(tmp_path / "own.json", b"x", mode)
        descriptor, part = json_documents.open_beside(tmp_path / "sweep.zip", mode)
        os.close(descriptor)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "own.json", part)] == [expected, expected]


@pytest.mark.skipif(shutil.which("setfacl") is None, reason="setfacl is not installed")
def test_a_default_acl_of_the_folder_counts_more_than_the_umask(tmp_path):
    set_acl = ["setfacl", "--default", "--modify", "group::rw", str(tmp_path)]
    if subprocess.run(set_acl, check=False, capture_output=True).returncode:
        pytest.skip("this disk has no ACLs")
    before = os.umask(0o022)
    try:
        write_bytes_atomically(tmp_path / "own.json", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "own.json").stat().st_mode) & 0o060 == 0o060
