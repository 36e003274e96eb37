"""The pages of the reference that are made from the code: one worker makes each, and all tests read it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def made_page(generators: None, once: Callable[[str, Callable[[Path], None]], Path]) -> Callable[[str], str]:
    """A function that returns the page of a generator, by its name."""

    def page(name: str) -> str:
        def make(folder: Path) -> None:
            (folder / "page.md").write_text(importlib.import_module(name).page(), "utf-8")

        return (once(f"page-{name}", make) / "page.md").read_text("utf-8")

    return page
