"""Documents are intact or refused, never half-written, and never silently overwritten."""

import json
import math
import os
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsweep import files, json_documents
from accelsweep.errors import DamagedFile, NewerFile, OlderFile
from accelsweep.installation import __version__
from accelsweep.json_documents import Document
from accelsweep.plain_json import canonical_json


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
def test_canonical_json_is_stable_under_a_round_trip(value):
    text = canonical_json(value)
    assert canonical_json(json.loads(text)) == text


def test_canonical_json_does_not_depend_on_the_order_of_keys():
    assert canonical_json({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_represent_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"rate": value})


@given(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_a_document_is_read_back_equal(tmp_path_factory, text, numbers):
    path = tmp_path_factory.getbasetemp() / "note.json"
    note = Note(text=text, numbers=tuple(numbers))
    note.write(path)
    assert Note.read(path) == note


def test_invalid_or_too_deeply_nested_json_is_damage(tmp_path):
    path = tmp_path / "note.json"
    for content in ("NaN", '{"accelsweep":"note","body":{"a":Infinity}}', '{"body":1e999}', "[" * 100_000):
        path.write_text(content)
        with pytest.raises(DamagedFile, match="not a complete JSON document"):
            Note.read(path)


def test_only_regular_files_of_limited_size_are_read(tmp_path):
    """Opening a FIFO blocks until it has a writer, and /dev/zero never ends."""
    fifo, zeros, folder = (tmp_path / name for name in ("fifo", "zeros", "folder"))
    os.mkfifo(fifo)
    zeros.symlink_to("/dev/zero")
    folder.mkdir()
    for path in (fifo, zeros, folder):
        with pytest.raises(DamagedFile, match=f"{path.name}: not a regular file: something else is in its place"):
            Note.read(path)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)
    with pytest.raises(DamagedFile, match="larger than 256 MiB"):
        Note.read(sparse)
    assert Note.read(written(tmp_path)).text == "seven"


def written(tmp_path: Path) -> Path:
    path = tmp_path / "note.json"
    Note(text="seven", numbers=(1.0, 2.5)).write(path)
    return path


def test_a_document_truncated_anywhere_is_refused_by_name(tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes().rstrip()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match=r"note\.json"):
            Note.read(path)


def test_a_document_that_was_laid_out_anew_is_read(tmp_path):
    path, note = tmp_path / "note.json", Note(text="é", numbers=(1.0, 1e300))
    note.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()), indent=2))
    assert Note.read(path) == note


def test_a_flipped_bit_anywhere_is_detected(tmp_path):
    path = written(tmp_path)
    whole = path.read_bytes().rstrip()
    for position in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(flipped))
        try:
            same = Note.read(path)
        except (DamagedFile, OlderFile):  # a flipped bit of the version may make it an old one
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
    """Rewrite a note as a later version may: intact, with that version, and with other values."""
    envelope = json.loads(path.read_text())
    body = envelope["body"] | changes
    seal = json_documents.sha256_text(canonical_json(body))
    path.write_text(json.dumps(envelope | {"version": version, "body": body, "sha256": seal}))
    return path


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [({"weather": "fine"}, "its 'weather'"), ({"numbers": ["one"]}, "its 'numbers.0'")],
)
def test_an_intact_document_of_a_later_version_is_refused_and_not_set_aside(tmp_path, changes, unknown):
    path = by_a_later_version(written(tmp_path), **changes)
    before = path.read_bytes()
    with pytest.raises(NewerFile, match=r"install accelsweep 99\.0") as caught:
        Note.read(path)
    assert f"written by accelsweep 99.0, but this is {__version__}, which does not know {unknown}" in str(caught.value)
    assert not isinstance(caught.value, DamagedFile), "damaged files are set aside and made again"
    assert path.read_bytes() == before


def test_a_later_format_is_refused_with_its_version(tmp_path):
    class Older(Note):
        format: ClassVar[int] = 0

    with pytest.raises(NewerFile, match=r"which does not know format 1 of a note; install accelsweep 99\.0"):
        Older.read(by_a_later_version(written(tmp_path)))


def test_an_unknown_key_is_attributed_to_another_version(tmp_path):
    with pytest.raises(NewerFile, match="written by another version of accelsweep"):
        Note.read(by_a_later_version(written(tmp_path), __version__, weather="fine"))


@pytest.mark.parametrize("changes", [{}, {"weather": "fine"}, {"numbers": ["one"]}])
def test_an_intact_document_from_before_0_2_is_refused_in_one_sentence_and_not_damaged(tmp_path, changes):
    path = by_a_later_version(written(tmp_path), "0.1.0", **changes)
    before = path.read_bytes()
    with pytest.raises(
        OlderFile, match=r"written by accelsweep 0\.1\.0, but .* cannot read files from before 0\.2"
    ) as caught:
        Note.read(path)
    assert not isinstance(caught.value, DamagedFile), "damaged files are set aside and made again"
    assert path.read_bytes() == before


def test_a_document_of_a_later_version_with_known_keys_is_read(tmp_path):
    assert Note.read(by_a_later_version(written(tmp_path), text="new")).text == "new"


@pytest.mark.parametrize("version", [None, __version__, "no version"])
def test_an_invalid_value_without_a_later_version_is_damage(tmp_path, version):
    with pytest.raises(DamagedFile, match="not a valid note: numbers"):
        Note.read(by_a_later_version(written(tmp_path), version, numbers=["one"]))


def test_a_document_of_a_later_version_with_a_wrong_checksum_is_damage(tmp_path):
    path = by_a_later_version(written(tmp_path), weather="fine")
    path.write_text(path.read_text().replace("fine", "rain"))
    with pytest.raises(DamagedFile, match="do not match its checksum"):
        Note.read(path)
