"""The page of a history in a real browser: offline, on a phone, and for readers who see no colours."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_series import build_sweep_again

from accelsweep.features.history.command import show_history

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
Axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make setup").Axe


pytestmark = [pytest.mark.browser, pytest.mark.real]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five sweeps with a change and another torch in the midst."""
    home = tmp_path_factory.mktemp("home")
    for day in range(1, 6):
        build_sweep_again(
            home, f"s{day}", days=day, speed=1.0 if day < 4 else 0.9, torch="2.9.0" if day < 4 else "2.13.0"
        )
    show_history(home, [f"s{day}" for day in range(1, 6)])
    (found,) = home.glob("reports/history/*/index.html")
    return found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_everybody_can_read_it_without_a_network(
    page: Path, browser: sync_api.Browser, width: int, scheme: str
) -> None:
    opened = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme).new_page()
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(page.as_uri())
    opened.wait_for_selector(f"html[data-drawn={scheme}]", timeout=30_000)
    assert (asked, complaints) == ([page.as_uri()], [])
    assert opened.evaluate("document.documentElement.scrollWidth") == width, "nothing leaves the screen"
    drawn = opened.locator("#chart-rate-1 svg").text_content()
    assert "9.7 % slower" in drawn, "the days have a noise of their own"
    assert "torch 2.9.0 to 2.13.0" in drawn
    found = Axe().run(opened).response["violations"]
    assert [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")] == []
