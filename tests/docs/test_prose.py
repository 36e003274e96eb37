"""Sentences for users and in docstrings are short and begin with their subject: a long one holds more than one idea."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from accelsweep.report.captions import CAPTIONS
from accelsweep.report.content import METHOD

ROOT = Path(__file__).resolve().parents[2]
NAMED = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = (
    [ROOT / name for name in NAMED]
    + sorted((ROOT / "docs").glob("*.md"))
    + [ROOT / "docs/evidence/README.md"]
    + sorted((ROOT / "docs/design").glob("*.md"))
)
LONGEST = 25
"""Words."""

APART = re.compile(r"""(?<!\b[A-Z])(?<!\be\.g)(?<!\bet al)[.!?](?=[\s)*"]|$)""")
"""Sentences end here: not after an initial, nor after `et al.`."""

ASKING = re.compile(r"(?:What|How|Which|Who|Whose|Why|Where|When)\b")
"""A docstring that begins so names no subject."""

CITED = re.compile(r"\b(?:1[89]|20)\d\d\b| = ")
"""Sources, which have a year, and formulas are as long as they are."""

NO_SUBJECT = re.compile(r"(?:^|(?<=[.:!?] ))(?:\*\*)?(What [^.:?*]*[.])")
"""Sentences of a page that have a question in the place of their subject."""


@pytest.fixture(scope="module")
def docstrings(generators):
    """The docstrings of the package, those of constants too, by file and line, from the generators' parse of it."""
    from sources import trees

    return {
        f"{path}:{node.lineno}": inspect.cleandoc(node.value.value)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def paragraphs(text):
    """The prose of a page: without code, pictures, tables' rules and addresses; a list's item is a paragraph."""
    text = re.sub(r"```.*?```|<!--.*?-->|^    .*?$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"``?[^`]+``?", "code", text)
    text = re.sub(r"^#+ (.*)$", r"\n\n\1\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*([*-]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"\s*\|\s*", "\n\n", text)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]


def sentences(text):
    return [sentence.strip() for paragraph in paragraphs(text) for sentence in APART.split(paragraph)]


def words(sentence):
    return [word for word in sentence.split() if any(letter.isalnum() for letter in word)]


def too_long(text):
    return [sentence for sentence in sentences(text) if len(words(sentence)) > LONGEST]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_sentence_is_short_enough_to_read_aloud_and_has_a_subject(page):
    text = page.read_text()
    assert too_long(text) == []
    assert [found for paragraph in paragraphs(text) for found in NO_SUBJECT.findall(paragraph)] == []


@pytest.mark.parametrize("name", ["answers", "commands", "config_keys", "doubts", "errors", "metrics"])
def test_no_sentence_of_a_page_made_from_the_code_is_too_long(name, made_page):
    assert too_long(made_page(name)) == []


def test_no_sentence_of_the_report_about_itself_is_too_long():
    texts = [*METHOD, *(caption.text for caption in CAPTIONS.values())]
    assert [text for text in texts if too_long(text)] == []


def test_no_sentence_of_a_docstring_is_too_long(docstrings):
    assert len(docstrings) > 3000
    found = {place: too_long(text) for place, text in docstrings.items()}
    found = {place: [one for one in long if not CITED.search(one)] for place, long in found.items()}
    assert {place: long for place, long in found.items() if long} == {}


def test_a_docstring_begins_with_its_subject(docstrings):
    assert {place: text for place, text in docstrings.items() if asks(text)} == {}


def asks(text):
    return ASKING.match(text) or any(sentence.startswith("What ") for sentence in sentences(text))


def test_a_docstring_without_a_subject_is_found():
    for text in ("What it is.", "How it is done: so.", "Where it lies.", "A thing. What is in it is ours."):
        assert asks(text), text
    for text in ("The thing.", "However it is done.", "A thing. Where it is None, nothing holds."):
        assert not asks(text), text
    assert NO_SUBJECT.findall("So. What is ours stays. **What it does.**") == ["What is ours stays.", "What it does."]
    assert not NO_SUBJECT.findall("What is ours? **What would change**: a price.")


def test_a_long_sentence_is_found_wherever_it_stands():
    long = " ".join(["word"] * (LONGEST + 1)) + "."
    short = " ".join(["word"] * LONGEST) + "."
    for text in ("{}", "* {}", "| a | {} |", "Short one. {} Short one.", "1. {}"):
        assert too_long(text.format(long))
        assert not too_long(text.format(short))
    assert not too_long(f"```sh\n{long}\n```"), "code is no prose"
