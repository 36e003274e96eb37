"""What holds for the suite itself."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG = re.compile(r"\bpytest\.mark\.long\b")
SENTENCE = re.compile(r"#.*(?:\w+\W+){3}\w+")
"""A comment of four words or more."""


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="there is one worker only")
def test_tests_that_share_something_expensive_share_a_worker(request):
    """pytest-xdist writes the group behind the name; with another pytest than it knows, it silently does not."""
    for item in request.session.items:
        groups = [mark.args[0] for mark in item.iter_markers("xdist_group")]
        assert not groups or item.nodeid.endswith(f"@{groups[0]}"), item.nodeid


def without_a_reason(text):
    """Return the lines with a mark that have no comment: beside it, on the line above, or at the head of its list."""
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if not LONG.search(line) or line.lstrip().startswith(("#", '"')):
            continue
        first = number
        while lines[first].startswith(" ") and lines[first - 1].rstrip().endswith(("(", "[")):
            first -= 1
        if not any(SENTENCE.search(lines[at]) for at in {number, number - 1, max(0, first - 1)} if at >= 0):
            found.append(number + 1)
    return found


def test_each_long_test_says_why_it_is_long():
    texts = {path.relative_to(TESTS): path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)}
    assert sum(len(LONG.findall(text)) for text in texts.values()) > 50
    assert {str(path): lines for path, text in texts.items() if (lines := without_a_reason(text))} == {}


NAMED = re.compile(r"#.*?\b(?:tests/)?((?:\w+/)*test_\w+\.py)")


def test_a_test_that_a_reason_names_is_there():
    named = {
        (str(path.relative_to(TESTS)), name)
        for path in TESTS.rglob("*.py")
        for line in path.read_text().splitlines()
        if LONG.search(line)
        for name in NAMED.findall(line)
    }
    assert len(named) > 20
    known = {path.name for path in TESTS.rglob("test_*.py")}
    assert {
        (where, name) for where, name in named if not ((TESTS / name).is_file() if "/" in name else name in known)
    } == set()


def test_a_long_test_without_a_reason_is_found():
    bare = ("@pytest.mark.long\ndef test_it():", "x = 1\npytestmark = [pytest.mark.long]", "@pytest.mark.long  # slow")
    for text in bare:
        assert without_a_reason(text), text
    for text in ("@pytest.mark.long  # only here it is", "# Only here it is\npytestmark = [\n    pytest.mark.long,\n]"):
        assert not without_a_reason(text), text
