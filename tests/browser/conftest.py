"""The real browser of these tests: Chromium without windows, which draws pages as Chromium does, for less work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for the tests of one file: Playwright's loop runs in it, so tests of other folders must not meet it."""
    if CHROMIUM is None:
        pytest.skip("no browser: neither chromium-headless-shell nor chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield made
        made.close()
