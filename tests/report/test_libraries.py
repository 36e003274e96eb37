"""The charts' libraries are bundled once a machine; a page never depends on whether they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import vl_convert

from accelsweep.machine.locks import FOLDER_VARIABLE
from accelsweep.report.libraries import chart_libraries

pytestmark = pytest.mark.heavy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "own"))
    chart_libraries.cache_clear()
    yield tmp_path / "own"
    chart_libraries.cache_clear()


def kept(folder: Path) -> Path:
    [file] = folder.glob("charts-*.js")
    return file


def again() -> str:
    """Return the libraries as another process would."""
    chart_libraries.cache_clear()
    return chart_libraries()


def test_a_second_report_reads_what_the_first_one_bundled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = chart_libraries()
    assert "vegaEmbed" in script
    assert vl_convert.__version__ in kept(folder).name
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda *_: pytest.fail("it was bundled again"))
    assert again() == script


@pytest.mark.parametrize("damage", [b"", b"not a digest", b"\xff\xfe\x00"])
def test_a_damaged_file_is_not_used_and_made_anew(folder: Path, damage: bytes) -> None:
    script = chart_libraries()
    good = kept(folder).read_bytes()
    kept(folder).write_bytes(damage or good[:-1])
    assert again() == script
    assert kept(folder).read_bytes() == good


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert "vegaEmbed" in chart_libraries()
    assert list(folder.iterdir()) == []
