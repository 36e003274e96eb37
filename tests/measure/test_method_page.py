"""`docs/method.md` names a module and a test for every point, and all of them exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "method.md").read_text()


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", PAGE)
    assert len(named) > 30
    for file, test in named:
        assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file} has no {test}"


def test_every_file_and_folder_that_the_page_names_exists():
    for path in re.findall(r"`([a-z_]+/(?:[a-z_/]+(?:\.py|/))?)`", PAGE):
        places = (ROOT / "src" / "accelsweep" / path, ROOT / "tests" / path, ROOT / path)
        assert any(place.exists() for place in places), f"there is no {path}"


def test_every_point_of_the_page_names_its_code_and_tests():
    for point in PAGE.split("\n### ")[1:]:
        body = point.split("\n## ")[0]
        assert "::test_" in body, f"no test holds {body.splitlines()[0]!r}"


def test_every_doubt_is_on_the_page():
    sources = (ROOT / "src" / "accelsweep").rglob("*.py")
    named = re.compile(r'code="([a-z_]+)"|"([a-z]+_differs?)"')
    codes = {one or other for source in sources for one, other in named.findall(source.read_text())}
    assert {"short_window", "bad_teardown", "build_differs", "sources_differ"} <= codes
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
