"""The chart libraries are bundled once per machine and cached; the page is the same either way."""

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
    """The real bundle, made without a cache: it takes seconds and is always the same."""

    def make(place: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(LEASE_FOLDER_VARIABLE, str(place / "own"))
            (place / "libraries.js").write_text(again(), "utf-8")
        chart_libraries.cache_clear()

    return (once("libraries", make) / "libraries.js").read_text("utf-8")


@pytest.fixture
def bundled(bundle: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The bundling calls of a test; each returns the real bundle."""
    calls: list[str] = []

    def make(exports: str, version: str) -> str:
        calls.append(f"{exports} {version}")
        return bundle

    monkeypatch.setattr(vl_convert, "javascript_bundle", make)
    return calls


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(LEASE_FOLDER_VARIABLE, str(tmp_path / "own"))
    chart_libraries.cache_clear()
    yield tmp_path / "own"
    chart_libraries.cache_clear()


def cache_file(folder: Path) -> Path:
    [file] = folder.glob("charts-*.js")
    return file


def again() -> str:
    """Return the libraries as another process would."""
    chart_libraries.cache_clear()
    return chart_libraries()


def test_a_second_process_reads_the_cached_bundle(folder: Path, bundle: str, bundled: list[str]) -> None:
    assert chart_libraries() == bundle
    assert "vegaEmbed" in bundle
    assert vl_convert.__version__ in cache_file(folder).name
    assert again() == bundle
    assert len(bundled) == 1


@pytest.mark.parametrize("damage", [b"", b"not a digest", b"\xff\xfe\x00"])
def test_a_damaged_cache_is_not_used_but_replaced(folder: Path, bundled: list[str], damage: bytes) -> None:
    script = chart_libraries()
    good = cache_file(folder).read_bytes()
    cache_file(folder).write_bytes(damage or good[:-1])
    assert again() == script
    assert cache_file(folder).read_bytes() == good
    assert len(bundled) == 2


def test_a_folder_that_others_can_write_to_is_not_used_as_cache(folder: Path, bundled: list[str]) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert "vegaEmbed" in chart_libraries()
    assert list(folder.iterdir()) == []
    assert len(bundled) == 1
