"""Links from the pages at the repository's root lead somewhere. MkDocs checks those of `docs/`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(page):
    """The anchors of a page's headings, as forges and MkDocs make them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken(text, folder):
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        place = (folder / target) if target else None
        if place is not None and not place.exists():
            yield target
        elif anchor and place is not None and place.suffix == ".md" and anchor not in anchors(place):
            yield f"{target}#{anchor}"


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_somewhere(name):
    text = (ROOT / name).read_text()
    assert list(broken(text, ROOT)) == []


def test_a_link_into_nothing_is_found():
    assert list(broken("[a](nowhere.md) [b](README.md#no-such-head) [c](README.md)", ROOT)) == [
        "nowhere.md",
        "README.md#no-such-head",
    ]


def test_the_readme_links_every_page_for_users():
    linked = {target for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - linked == set()


def test_the_readme_is_short_enough_to_be_read():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 90
