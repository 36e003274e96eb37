"""Readers meet one word for one thing: a setting, a rung, the raw loop. Files, keys and tags may keep older names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src" / "accelsweep").rglob("*.py"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "design").glob("*.md")]
REPLACED = re.compile(
    r"\bcells?\b|\bbare (?:PyTorch )?loops?\b|\bsteps? of (?:a|the) ladder\b|\bvalues are steps\b|\bthe kernel\b",
    re.IGNORECASE,
)
"""Older words: a setting was a cell, a rung was a step of a ladder, and the raw loop was called bare.

Nor is the operating system the kernel, or Jupyter's process: a kernel is a program on a device.
"""

CODE = re.compile(r"``?[^`]+``?|\\?\{.*?\}")
"""Names of keys and files, and the places of values; they are no prose."""

SAID_BY = {"add_column", "Column", "count", "count_of", "Tooltip"}
"""Calls that show even a single word to the reader: heads of columns, counted things, heads in tooltips."""

KEPT = {
    ("publish/views/views.py", "tags.kind = 'cell'"): "a search in MLflow for that tag",
}


def replaced(text):
    return REPLACED.findall(CODE.sub("", text))


def written(node):
    """The text of a literal, with `{}` for each value that an f-string shows."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def said(tree):
    """Yield the literals that readers see: all with a blank in them, and single words where they are shown.

    Strings that are statements describe the code beside them. Strings inside an f-string are seen for themselves.
    """
    nodes = list(ast.walk(tree))
    silent = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    silent |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        text = "" if id(node) in silent else written(node)
        if " " in text.strip():
            yield text
        shown = node.values if isinstance(node, ast.Dict) else []
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in SAID_BY:
            shown = [*node.args, *(word.value for word in node.keywords if word.arg == "title")]
        yield from (text for text in map(written, shown) if text and " " not in text)


def test_no_message_has_an_older_word():
    messages = ((path, text) for path in SOURCES for text in said(ast.parse(path.read_text())))
    older = {(str(path.relative_to(ROOT / "src" / "accelsweep")), text) for path, text in messages if replaced(text)}
    assert older == KEPT.keys()


def test_an_older_word_is_found_wherever_it_is_said():
    for source in (
        'raise InputError(f"the cell {name!r} is missing")',
        'print("no " "cell of it")',
        "f\"{count_of(many, 'cell')}\"",
        'table.add_column("cell")',
        'alt.Tooltip("label:N", title="cell")',
        'TOOLTIP = {"label": "Cell"}',
        'note = "a bare loop needs one DataLoader"',
        'reason = "killed by the kernel"',
        'note = "each step of the ladder"',
    ):
        assert [text for text in said(ast.parse(source)) if replaced(text)], source
    for source in ('"""A cell."""', 'row["cell"]', 'f"{cell} runs"', '"the key `cell` is missing"', '{"cell": name}'):
        assert not [text for text in said(ast.parse(source)) if replaced(text)], source


def test_every_exception_is_needed():
    for name, text in KEPT:
        assert text in said(ast.parse((ROOT / "src" / "accelsweep" / name).read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_an_older_word(page):
    prose = re.sub(r"```.*?```|^    .*?$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.split("\n\n") if replaced(line)] == []


@pytest.mark.parametrize("name", ["answers", "commands", "config_keys", "doubts", "errors", "metrics"])
def test_no_page_that_is_made_from_the_code_has_an_older_word(name, made_page):
    assert [line for line in made_page(name).splitlines() if replaced(line)] == []


def test_no_comment_in_a_config_has_an_older_word():
    files = [*(ROOT / "conf").rglob("*.yaml"), *(ROOT / "starter").rglob("*.yaml")]
    comments = {line for file in files for line in re.findall(r"(?:^|\s)#\s(.*)$", file.read_text(), re.MULTILINE)}
    assert len(comments) > 100
    assert [line for line in comments if replaced(line)] == []
