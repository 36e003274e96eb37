"""The glossary's names of classes are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_class_that_the_glossary_names_exists():
    page = (ROOT / "docs" / "glossary.md").read_text()
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", page))
    assert {"Record", "Doubt", "Verdict"} <= named
    sources = "\n".join(path.read_text() for path in (ROOT / "src" / "accelsweep").rglob("*.py"))
    assert {name for name in named if not re.search(rf"^class {name}\b", sources, re.MULTILINE)} == set()


def test_every_word_stands_once():
    words = re.findall(r"^\| ([a-z][\w -]*) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    words = [word for word in words if word != "word"]
    assert len(words) > 40
    assert sorted(words) == sorted(set(words))
