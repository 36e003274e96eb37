"""The report as its readers meet it, in a real browser: offline, light and dark, on a phone, with the keyboard.

Screenshots are kept only where the environment variable ACCELSWEEP_SCREENSHOTS names a folder (such as `docs/images`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

import pytest
from example_sweep import build_example_sweep

from accelsweep.json_documents import Document
from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.report.figures.figure import DARK
from accelsweep.report.report_files import write_report
from accelsweep.report.table_model import MAX_ROWS

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
Axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed: make setup").Axe
Browser = sync_api.Browser
Page = sync_api.Page

QUICKSTART, LADDER = (
    Path(__file__).resolve().parents[2] / "reports" / "examples" / name / "reports" / name / "index.html"
    for name in ("quickstart", "ladder")
)
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=2'>\"'&" + "x" * 300
KEPT = {
    "certainty",
    "sweep",
    "run",
    "setting",
    "baseline",
    "outcome",
    "verdict",
    "unit",
    "kind",
    "records_sha256",
    "started_at",
}

LOOKS = [("light", 1280), ("dark", 390)]
"""Preference and width in pixels: a laptop and a phone."""

pytestmark = [pytest.mark.browser, pytest.mark.real]

Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """A function that opens a page for this test alone, which may change it."""
    with ExitStack() as pages:  # an open one goes on to use the processor and the memory of the tests after it
        yield lambda file, **wishes: pages.enter_context(open_page(browser, file, **wishes))


@pytest.fixture(scope="module")
def seen(browser: Browser) -> Open:
    """A function that opens a page once for all tests that look at it as this reader: they leave it as it is."""
    once = cache(partial(open_page, browser))
    return lambda file, scheme="light", width=1280: once(file, scheme, width)


def open_page(browser: Browser, file: Path, scheme: str = "light", width: int = 1280, scripts: bool = True) -> Page:
    """Open a page and wait for its charts; `scheme` is the reader's preference, `width` in pixels."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=scripts)
    page.goto(file.as_uri())
    if scripts:
        page.wait_for_selector(f"html[data-drawn={scheme}]", timeout=30_000)
    return page


def complaints(page: Page) -> list[str]:
    """Return all that the page complained about since it was opened."""
    return [*(message.text for message in page.console_messages()), *map(str, page.page_errors())]


def requests(page: Page) -> list[str]:
    """Return what the page asked for since it was opened: itself, and nothing else."""
    return [request.url for request in page.requests()]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """A finished sweep with findings, as analyse leaves it."""
    from accelsweep.analysis.analyse_sweep import analyse
    from accelsweep.analysis.collect import collect
    from accelsweep.records.plan import Manifest

    folder = build_example_sweep(tmp_path_factory.mktemp("home"))
    analyse(collect(folder), Manifest.read(folder.manifest)).write(folder.findings)
    return folder


@pytest.fixture(scope="module")
def report(sweep: SweepFolder) -> Path:
    return write_report(sweep)


@pytest.fixture(scope="module")
def hostile_report(sweep: SweepFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the same sweep with a hostile end on every free text."""
    folder = SweepFolder(tmp_path_factory.mktemp("hostile"), sweep.name)
    hostile: Document = Findings.model_validate(_poisoned(Findings.read(sweep.findings).model_dump()))
    hostile.write(folder.findings)
    (folder.root / "runs").symlink_to(sweep.root / "runs")
    return write_report(folder)


def _poisoned(value: object, key: str = "") -> object:
    if key in KEPT:
        return value
    if type(value) is str:
        return f"{value} {HOSTILE}"
    if isinstance(value, dict):
        return {name: _poisoned(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_poisoned(item, key) for item in value]
    return value


def keep_screenshot(page: Page, name: str) -> None:
    """Save what the page shows, where somebody asked for it."""
    if folder := os.environ.get("ACCELSWEEP_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def scroll_width(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth"))


def test_the_page_opens_offline_draws_every_chart_and_complains_about_nothing(seen, report):
    page = seen(report)
    places = page.query_selector_all(".chart")
    assert len(places) >= 7
    for place in places:
        marks = place.query_selector_all("svg .mark-symbol path, svg .mark-rect path, svg .mark-line path")
        assert marks, place.get_attribute("id")
        told = place.query_selector("[role='graphics-document']") or place
        assert told.get_attribute("aria-label").endswith("."), "the alternative text is still there"
    assert complaints(page) == []
    assert requests(page) == [report.as_uri()]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_the_finished_example_looks_as_the_documentation_shows_it(seen, scheme, width):
    page = seen(QUICKSTART, scheme, width)
    if (scheme, width) == LOOKS[0]:
        keep_screenshot(page, "report")
    assert page.locator("h1").bounding_box()["y"] < 900
    assert page.locator(".facts").is_visible()
    assert scroll_width(page) == width
    assert complaints(page) == []
    assert requests(page) == [QUICKSTART.as_uri()]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])  # contrast is seen below
def test_axe_finds_nothing_serious_in_either_theme(seen, report, scheme):
    """Names of charts, contrast, headings, labels and landmarks, as axe-core judges them."""
    for file in (report, QUICKSTART, LADDER):
        found = Axe().run(seen(file, scheme), options={"resultTypes": ["violations"]}).response["violations"]
        assert [(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")] == [], file


@pytest.mark.parametrize(("scheme", "width", "height"), [("light", 1280, 900), ("dark", 390, 844)])
def test_the_whole_answer_fits_the_first_screen(seen, scheme, width, height):
    """Answer, what to type or to doubt, forest plot, tiles and provenance, on a laptop and on a phone."""
    for file in (QUICKSTART, LADDER):
        page = seen(file, scheme, width)
        optional = [found for found in ("#answer > .command", ".amber") if page.query_selector(found)]
        for selector in (".advice", *optional, "#chart-speedup svg", ".facts", ".strip"):
            box = page.query_selector(selector).bounding_box()
            assert box["y"] + box["height"] <= height, (file, selector)
            assert box["x"] >= 0, (file, selector)
            assert box["x"] + box["width"] <= width, (file, selector)
        assert complaints(page) == []


def test_a_reader_who_prefers_dark_gets_a_dark_page_with_dark_charts_and_may_change_their_mind(opened, report):
    page = opened(report, scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    chart = f"document.querySelector('#chart-speedup svg').outerHTML.includes('{DARK.muted}')"
    assert page.evaluate(background) == "rgb(18, 23, 30)"
    assert page.evaluate(chart)
    page.emulate_media(color_scheme="light")
    page.wait_for_selector("html[data-drawn=light]")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert not page.evaluate(chart)
    assert complaints(page) == []


def test_a_phone_sets_every_table_and_chart_in_its_width_and_cuts_no_text_of_a_chart(opened, report):
    for file in (report, QUICKSTART, LADDER):
        page = opened(file, width=390)
        assert file == report or page.evaluate(CUT_TEXT) == [], file  # the reasons in that one are too long for labels
        page.evaluate("document.querySelectorAll('details.fold').forEach((one) => (one.open = true))")
        for width in (390, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert scroll_width(page) == width
            beyond = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
            assert page.evaluate(f"{beyond}.map((box) => box.querySelector('table').id)") == []
            for chart in page.query_selector_all(".chart svg"):
                assert chart.bounding_box()["width"] <= width
        assert complaints(page) == []
        assert requests(page) == [file.as_uri()]


def test_a_laptop_cuts_no_text_of_a_chart(seen):
    for file in (QUICKSTART, LADDER):
        assert seen(file).evaluate(CUT_TEXT) == [], file


CUT_TEXT = """() => [...document.querySelectorAll(".chart svg text")].filter((text) => {
  const [inner, outer] = [text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()];
  const isBeyond = inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1);
  return text.textContent.endsWith("\u2026") || isBeyond;
}).map((text) => text.textContent)"""
"""Returns the texts that reach beyond their chart, or that Vega shortened."""


def test_charts_are_as_wide_as_paper_when_the_page_is_printed(opened, report):
    page = opened(report)
    widths = "[...document.querySelectorAll('.chart svg')].map((chart) => chart.viewBox.baseVal.width)"
    assert min(page.evaluate(widths)) > 1000
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert max(page.evaluate(widths)) <= 690
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.wait_for_function(f"Math.min(...{widths}) > 1000")


def test_nothing_is_cut_on_paper(opened):
    """718 pixels are A4 without its margins; tables cannot be scrolled there."""
    page = opened(QUICKSTART)
    page.emulate_media(media="print")
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    for width in (1280, 718):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(CUT, width) == []


CUT = """width => [...document.querySelectorAll("main *")]
  .filter((one) => one.checkVisibility() && !one.closest(".unseen") && one.getBoundingClientRect().right > width + 1)
  .map((one) => one.tagName + one.className)"""
"""Returns what reaches beyond the right edge."""


def test_the_keyboard_reaches_the_content_the_tables_and_the_choice_of_a_run(opened, report):
    page = opened(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "PRE.", "DIV.scroll", "SELECT.", "SUMMARY.", "BUTTON."} <= {name.split(" ")[0] for name in reached}
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_choosing_a_run_lets_the_others_fade(opened, report):
    page = opened(report)
    before = page.inner_html("#chart-steps")
    page.select_option("#controls-steps select", index=3)
    page.wait_for_function("before => document.querySelector('#chart-steps').innerHTML !== before", arg=before)
    faint = (
        "[...document.querySelectorAll('#chart-steps svg .mark-line path')].map((line) => line.getAttribute('opacity'))"
    )
    shown = page.evaluate(faint)
    assert shown.count("0.9") == 1
    assert set(shown) == {"0.9", "0.08"}


def test_tables_sort_by_number_with_what_a_row_opens_to_below_it_and_filter_by_words(opened, report):
    page = opened(report)
    first = "#table-settings tbody tr:first-child"
    fastest, last = (page.inner_text(f"{row} th") for row in (first, "#table-settings tbody tr:nth-last-child(2)"))
    page.click("#table-settings thead th:nth-child(2) button")
    assert page.inner_text(f"{first} th") == fastest
    page.click("#table-settings thead th:nth-child(2) button")
    assert page.get_attribute("#table-settings thead th:nth-child(2)", "aria-sort") == "ascending"
    assert page.inner_text(f"{first} th") == last
    page.click(f"{first} summary")
    assert page.locator("#table-settings tbody tr.more:nth-child(2)").is_visible()
    page.click("#runs summary")
    page.fill("#runs input", "crashed")
    assert page.inner_text("#runs [role=status]") == "1 of 24 rows"


@pytest.mark.parametrize("scripts", [True, False])
def test_a_row_of_a_setting_opens_to_the_rest_that_is_known_of_it(opened, report, scripts):
    page = opened(report, scripts=scripts)
    closed = page.locator("#table-settings tr.more").first
    assert not closed.is_visible()
    page.click("#table-settings tbody tr:first-child summary")
    assert closed.is_visible()
    for words in ("Memory", "Verdict", "accelsweep run", "Trainer("):
        assert words in closed.inner_text()
    assert page.locator("#table-settings tr.more:visible").count() == 1


def test_a_row_beyond_the_first_200_is_found_by_the_filter_and_opens(opened, sweep, tmp_path):
    findings = Findings.read(sweep.findings)
    measured = [setting for setting in findings.settings if setting.rate]
    many = [
        measured[number % len(measured)].model_copy(update={"label": f"k={number}", "again": f"measure {number}"})
        for number in range(MAX_ROWS + 50)
    ]
    folder = SweepFolder(tmp_path, sweep.name)
    findings.model_copy(update={"settings": tuple(many)}).write(folder.findings)
    page = opened(write_report(folder))
    page.fill("[data-filters=table-settings]", f"k={MAX_ROWS + 49}")
    assert page.locator("#table-settings tbody th").all_inner_texts() == [f"k={MAX_ROWS + 49}"]
    page.click("#table-settings summary")
    assert f"measure {MAX_ROWS + 49}" in page.inner_text("#table-settings tr.more")
    assert complaints(page) == []


def test_without_scripts_the_pictures_and_tables_are_there(opened, report):
    page = opened(report, scripts=False)
    assert len(page.query_selector_all("noscript .picture svg")) >= 7
    assert page.is_visible("#table-settings")


def test_hostile_texts_run_nothing_and_move_nothing(opened, hostile_report):
    for width in (1280, 375):
        page = opened(hostile_report, width=width)
        page.hover("#chart-speedup svg .mark-symbol path >> nth=0", force=True)
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert "window.hacked=1" in page.inner_text("#vg-tooltip-element")
        assert page.evaluate("window.hacked") is None
        assert scroll_width(page) == width
        assert complaints(page) == []
        assert requests(page) == [hostile_report.as_uri()]


def test_a_sweep_without_a_single_interval_draws_its_charts_without_complaint(opened, sweep, tmp_path):
    """One repeat shows no spread, so every interval is absent."""
    folder = SweepFolder(tmp_path, sweep.name)
    Findings.model_validate(_pointlike(Findings.read(sweep.findings).model_dump())).write(folder.findings)
    page = opened(write_report(folder))
    assert "no interval" in page.inner_text("#settings")
    assert complaints(page) == []


def _pointlike(value: object) -> object:
    if isinstance(value, dict):
        bare = {"low": None, "high": None, "reason": "one repeat"} if "low" in value else {}
        knee = {"knee": None} if "knee" in value else {}
        return {key: _pointlike(item) for key, item in value.items()} | bare | knee
    if isinstance(value, list | tuple):
        return [_pointlike(item) for item in value]
    return value


FRAMED = """html => {
  const frame = Object.assign(document.createElement("iframe"), { width: 1100, height: 800 });
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  document.body.append(frame);
}"""
"""Shows a page as MLflow's viewer of artifacts does: from a Blob, in a frame that may run scripts and nothing else."""


def test_in_a_sandboxed_frame_sections_scroll_and_files_are_shown(browser, report):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto("about:blank")
    page.evaluate(FRAMED, report.read_text("utf-8"))
    page.wait_for_function("window.frames.length === 1")
    frame = page.frames[1]
    frame.wait_for_selector("html[data-drawn]", timeout=30_000)
    frame.click("nav a[href='#runs']")
    frame.wait_for_function("window.scrollY > 1000")
    for address, first in (
        ("quality.csv", "setting,label,"),
        ("settings.csv", "Setting,Rate (samples/s),"),
        ("speedup.svg", "<svg "),
    ):
        frame.click(f"a[href='{address}']")
        assert frame.input_value("dialog textarea").startswith(first)
        assert frame.get_attribute("dialog a", "download") == address
        frame.click("dialog button")
        frame.wait_for_selector("dialog", state="detached")
    page.close()


def test_text_has_contrast_enough_in_both_schemes(seen, report):
    for scheme in ("light", "dark"):
        page = seen(report, scheme)
        for selector in TEXTS:
            assert page.evaluate(CONTRAST, selector) >= 4.5, (scheme, selector)


TEXTS = (".advice", ".scope", "figcaption", "td small", "nav a", ".tone.faster", ".tone.slower", ".tone.doubt")
CONTRAST = """selector => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const element = document.querySelector(selector);
  let behind = element;
  while (behind && (channels(getComputedStyle(behind).backgroundColor)[3] === 0)) behind = behind.parentElement;
  const [x, y] = [getComputedStyle(element).color, getComputedStyle(behind ?? document.body).backgroundColor]
    .map((color) => light(channels(color)));
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}"""
"""Returns the contrast ratio (WCAG 2) of an element's text against the background that lies behind it."""
