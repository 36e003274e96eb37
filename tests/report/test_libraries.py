"""The charts' libraries are bundled once a machine; a page never depends on whether they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import vl_convert

from accelsweep.files import LEASE_FOLDER_VARIABLE
from accelsweep.report.html_page import chart_libraries

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="session")
def bundle(once: Callable[[str, Callable[[Path], None]], Path]) -> str:
    """The libraries, really bundled, where none was kept: it takes seconds, and comes to the same each time."""

    def make(place: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(LEASE_FOLDER_VARIABLE, str(place / "own"))
            (place / "libraries.js").write_text(again(), "utf-8")
        chart_libraries.cache_clear()

    return (once("libraries", make) / "libraries.js").read_text("utf-8")


@pytest.fixture
def bundled(bundle: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What this test has had bundled so far: what was really bundled is its answer each time."""
    asked: list[str] = []

    def make(exports: str, version: str) -> str:
        asked.append(f"{exports} {version}")
        return bundle

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    return asked


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "own"))
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


def test_a_second_report_reads_what_the_first_one_bundled(folder: Path, bundle: str, bundled: list[str]) -> None:
    assert chart_libraries() == bundle
    assert "vegaEmbed" in bundle
    assert vl_convert.__version__ in kept(folder).name
    assert again() == bundle
    assert len(bundled) == 1


@pytest.mark.parametrize("damage", [b"", b"not a digest", b"\xff\xfe\x00"])
def test_a_damaged_file_is_not_used_and_made_anew(folder: Path, bundled: list[str], damage: bytes) -> None:
    script = chart_libraries()
    good = kept(folder).read_bytes()
    kept(folder).write_bytes(damage or good[:-1])
    assert again() == script
    assert kept(folder).read_bytes() == good
    assert len(bundled) == 2


def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, bundled: list[str]) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert "vegaEmbed" in chart_libraries()
    assert list(folder.iterdir()) == []
    assert len(bundled) == 1
