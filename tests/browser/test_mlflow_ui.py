"""MLflow's UI as a user meets it, in a real browser: follow a sweep, open settings and repeats, compare, filter, read.

Screenshots are kept only where the environment variable ACCELSWEEP_SCREENSHOTS names a folder (such as `docs/images`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from example_sweep import build_example_sweep
from polling import PATIENCE_SECONDS, until

from accelsweep.records.findings import Findings
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.tracking.links import REPEATS_VIEW, SETTINGS_VIEW, view_path
from accelsweep.tracking.published_state import published_sweeps
from accelsweep.tracking.repeat_runs import run_name

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
Page = sync_api.Page
expect = sync_api.expect

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "quickstart"
SECONDS = 1000
SETTING = "batch 32, 32-bit, 2 devices"
OTHER = "batch 32, 32-bit, 1 device"
UNSUPPORTED = "batch 32, 16-mixed, 2 devices"

ANSWERS = {"speedup", "interval", "verdict", "quality", "memory_gib", "doubts"}
"""The columns that say which setting is fastest, how sure that is, and what it costs."""

CUT_TEXTS = """head => [...head.querySelectorAll('span')]
    .filter(text => text.scrollWidth > text.clientWidth + 1).map(text => text.innerText)"""

pytestmark = [pytest.mark.browser, pytest.mark.real]


class Site:
    """A folder's results in MLflow's UI: where the experiment is, and a page to look at it with."""

    def __init__(self, folder: SweepFolder, store: str, address: str, page: Page) -> None:
        self.folder, self.store, self.address, self.page = folder, store, address, page

    def open(self, name: str | None = None) -> Page:
        """Open the list of the experiment's runs, through the front door, or another sweep's."""
        self.page.goto("about:blank")  # or a mere change behind the # would not load the page anew
        self.page.goto(f"{self.address}/#/experiments")
        self.page.get_by_text("Model training", exact=True).click()
        links = self.page.get_by_test_id("experiment-list-item-link")
        links.get_by_text(name or self.folder.name, exact=True).click()
        expect(self.page.get_by_test_id("search-box")).to_be_visible()
        self._close_assistant()
        expect(self.page.locator(".ag-row a[href*='/runs/']").first).to_be_visible()  # a search before that may be lost
        return self.page

    def view(self, key: str, *, charts: bool = False) -> Page:
        """Open a saved view by its address, as `accelsweep ui` prints it and the note links it."""
        return self._go_to(view_path(self._experiment(), key, charts=charts))

    def all_runs(self) -> Page:
        """Open the list that the front door leads to by its address, which is three pages less."""
        page = self._go_to(f"/#/experiments/{self._experiment()}/runs?workflowType=machine_learning")
        expect(page.locator(".ag-row a[href*='/runs/']").first).to_be_visible()
        return page

    def _experiment(self) -> str:
        return published_sweeps(self.folder.home, self.store)[self.folder.name].experiment_id

    def _go_to(self, path: str) -> Page:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}{path}")
        expect(self.page.get_by_test_id("search-box")).to_be_visible()
        self._close_assistant()
        return self.page

    def _close_assistant(self) -> None:
        """Close the panel of MLflow's assistant, which is open on a first visit."""
        if close := self.page.get_by_role("button", name="Close", exact=True).all():
            close[0].click()

    def row(self, name: str) -> sync_api.Locator:
        """Return the row of the run with exactly this name."""
        return self.page.locator(".ag-row", has=self.page.get_by_role("link", name=name, exact=True))

    def names(self) -> list[str]:
        """Return the names of the runs that the list shows, in the order of the page's source."""
        return self.page.locator(".ag-row a[href*='/runs/']").all_inner_texts()

    def in_order(self) -> list[str]:
        """Return the names of the runs that the list shows, from top to bottom."""
        links = self.page.locator(".ag-row a[href*='/runs/']").all()
        places = [(box["y"], link.inner_text()) for link in links if (box := link.bounding_box()) is not None]
        return [name for _, name in sorted(places)]

    def keep(self, name: str) -> None:
        """Keep a screenshot, if screenshots are asked for."""
        if folder := os.environ.get("ACCELSWEEP_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.wait_for_timeout(1000)  # charts are drawn with a short animation
            self.page.screenshot(path=Path(folder) / f"mlflow-{name}.png")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, server_store: str, server: str) -> tuple[SweepFolder, str, str]:
    """The example sweep with its report, the store that has it, and the address of a UI on that."""
    from accelsweep.driver.finalize import finalize
    from accelsweep.tracking.publisher import publish

    folder = build_example_sweep(tmp_path_factory.mktemp("mlflow"))
    finalize(folder)
    publish(folder, server_store)
    return folder, server_store, server


@pytest.fixture(scope="module")
def window(browser: sync_api.Browser) -> Page:
    """One window for all tests: Chromium need not read MLflow's scripts, ten megabytes of them, for each test anew."""
    return browser.new_page()


@pytest.fixture
def site(published: tuple[SweepFolder, str, str], window: Page) -> Iterator[Site]:
    """The published sweep, and a browser that remembers nothing of earlier tests."""
    window.set_viewport_size({"width": 1500, "height": 950})
    window.set_default_timeout(20 * SECONDS)
    expect.set_options(timeout=20 * SECONDS)
    yield Site(*published, window)
    window.evaluate("location.origin === 'null' || [localStorage, sessionStorage].forEach((kept) => kept.clear())")
    window.context.clear_cookies()


def settings_of(site: Site) -> set[str]:
    return {name for name in site.names() if not name.startswith("report")}


def test_the_list_shows_settings_by_name_and_their_repeats_below_them(site: Site) -> None:
    page = site.open()
    expect(site.row(SETTING)).to_be_visible()
    until(lambda: len(settings_of(site)) == 9)
    assert not any("#" in name for name in settings_of(site)), "repeats stay folded below their setting"
    site.row(SETTING).get_by_role("button").first.click()
    for repeat in range(3):
        expect(site.row(f"#{repeat} {SETTING}")).to_be_visible()
    expect(page.get_by_text("35 matching runs")).to_be_visible()


def test_settings_that_cannot_run_are_one_folded_group_at_the_end_and_no_failures(site: Site) -> None:
    page = site.all_runs()
    group = site.row("cannot run here (2)")
    expect(group).to_be_visible()
    assert site.in_order()[-1] == "cannot run here (2)"
    expect(page.get_by_role("link", name=UNSUPPORTED, exact=True)).to_have_count(0)
    group.get_by_role("button").first.click()
    expect(site.row(UNSUPPORTED)).to_be_visible()
    group.get_by_role("link", name="cannot run here (2)", exact=True).click()
    expect(page.get_by_text("16-mixed is not available on a CPU").first).to_be_visible()


def test_the_first_view_answers_without_a_click(site: Site) -> None:
    """The settings stand there by their speed-up, with interval, verdict, doubts, rate and quality beside them."""
    page = site.view(SETTINGS_VIEW)
    settings = [setting for setting in Findings.read(site.folder.findings).settings if setting.speedup is not None]
    ratios = {run_name(setting.axes): setting.speedup.ratio.value for setting in settings if setting.speedup}
    expect(site.row(max(ratios, key=ratios.__getitem__))).to_be_visible()
    shown = [name for name in site.names() if name in ratios]
    assert shown == sorted(ratios, key=ratios.__getitem__, reverse=True)
    until(lambda: ANSWERS.issubset(text.strip() for text in page.locator(".ag-header-cell").all_inner_texts()))
    assert not [name for name in site.names() if "#" in name or name.startswith("report")]
    expect(page.get_by_text(Findings.read(site.folder.findings).recommendation.sentence[:30]).first).to_be_visible()
    page.get_by_role("button", name="1 Settings").click()
    for name in ("1 Settings: which is fastest, and how sure", "2 Repeats: curves and spread"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


def test_the_heads_of_the_answering_columns_fit_into_a_window_of_1280_pixels(site: Site) -> None:
    site.page.set_viewport_size({"width": 1280, "height": 900})
    page = site.view(SETTINGS_VIEW)
    expect(site.row(SETTING)).to_be_visible()
    expect(page.locator(".ag-header-cell", has_text="doubts")).to_be_visible()
    heads = {head.inner_text().strip(): head for head in page.locator(".ag-header-cell").all()}
    table = page.locator(".ag-center-cols-viewport").bounding_box()
    assert table is not None
    for name in ("Run Name", "Created", *ANSWERS):
        box = heads[name].bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= table["x"] + table["width"], f"{name} is cut at the right"
        assert heads[name].evaluate(CUT_TEXTS) == [], f"{name} does not fit"


def test_one_click_leads_from_the_list_and_from_a_setting_to_the_report(site: Site) -> None:
    headline = Findings.read(site.folder.findings).recommendation.headline

    def click_link(page: Page) -> None:
        with page.expect_popup() as opened:
            page.get_by_role("link", name="Open the report").first.click()
        report = opened.value.frame_locator("iframe.mlflow-html-iframe")
        expect(report.get_by_text(headline).first).to_be_visible()
        opened.value.close()

    page = site.view(SETTINGS_VIEW)
    expect(site.row(SETTING)).to_be_visible()
    click_link(page)
    page.get_by_role("link", name=SETTING, exact=True).click()
    expect(page.get_by_role("heading", name=SETTING)).to_be_visible()
    click_link(page)


def test_the_charts_of_both_views_are_drawn(site: Site) -> None:
    page = site.view(SETTINGS_VIEW, charts=True)
    for heading in ("Speed-up", "Its price", "By setting"):
        expect(page.get_by_text(heading, exact=False).first).to_be_visible()
    expect(page.get_by_text("speed-up", exact=True).first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page = site.view(REPEATS_VIEW, charts=True)
    expect(page.get_by_text("Steps over time", exact=True).first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()


@pytest.mark.long  # test_publisher.py reads them from the store; a setting's page, above, is the same page
def test_a_repeat_shows_its_reason_params_curves_and_artifacts(site: Site) -> None:
    page = site.all_runs()
    site.row(SETTING).get_by_role("button").first.click()
    page.get_by_role("link", name=f"#0 {SETTING}", exact=True).click()
    expect(page.get_by_role("heading", name=f"#0 {SETTING}")).to_be_visible()
    expect(page.get_by_text("effective.strategy", exact=True)).to_be_visible()
    expect(page.get_by_text("unavailable: RAPL is not readable here")).to_be_visible()
    expect(page.get_by_text("Digits (").first).to_be_visible()
    page.get_by_role("tab", name="Model metrics").click()
    expect(page.get_by_text("curve", exact=True)).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_role("tab", name="Artifacts").click()
    for artifact in ("record.json", "run.log", "steps.parquet"):
        expect(page.get_by_text(artifact, exact=True).first).to_be_visible()
    page.get_by_text("run.log", exact=True).first.click()
    expect(page.get_by_text("measured").first).to_be_visible()


def test_a_setting_shows_its_verdict_and_the_way_to_its_repeats(site: Site) -> None:
    page = site.all_runs()
    page.get_by_role("link", name=SETTING, exact=True).click()
    expect(page.get_by_role("heading", name=SETTING)).to_be_visible()
    expect(page.get_by_text("verdict", exact=False).first).to_be_visible()
    expect(page.get_by_text("speedup_low", exact=True)).to_be_visible()


def test_runs_are_filtered_by_a_param(site: Site) -> None:
    page = site.all_runs()
    expect(page.get_by_text("35 matching runs")).to_be_visible()
    page.get_by_test_id("search-box").fill("params.batch_size = '128' and tags.outcome = 'out_of_memory'")
    page.get_by_test_id("search-box").press("Enter")
    expect(page.get_by_text(re.compile(r"\b4 matching runs"))).to_be_visible()
    found = {"batch 128, 32-bit, 2 devices"}
    until(lambda: {name.partition(" ")[2] if name.startswith("#") else name for name in site.names()} == found)


@pytest.mark.long  # a page of MLflow's own; the charts of both views are drawn above
def test_two_settings_are_compared_in_a_chart(site: Site) -> None:
    page = site.all_runs()
    for name in (SETTING, OTHER):
        site.row(name).get_by_role("checkbox").first.check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("Comparing 2 Runs", exact=False).first).to_be_visible()
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    expect(page.get_by_text("samples_per_second", exact=True).first).to_be_visible()
    page = site.all_runs()
    page.get_by_test_id("search-box").fill("tags.kind = 'setting' and metrics.samples_per_second > 0")
    page.get_by_test_id("search-box").press("Enter")
    expect(page.get_by_text("7 matching runs")).to_be_visible()
    page.goto(page.url + "&compareRunsMode=CHART")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    page.get_by_placeholder("Search metric charts").fill("speedup")
    for name in ("speedup", "speedup_low", "speedup_high"):
        expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()


def test_the_report_opens_in_the_artifact_viewer(site: Site) -> None:
    page = site.all_runs()
    page.get_by_role("link", name="report (revision 1)", exact=True).click()
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("report", exact=True).last.click()
    page.get_by_text("index.html", exact=True).click()
    report = page.frame_locator("iframe.mlflow-html-iframe")
    headline = Findings.read(site.folder.findings).recommendation.headline
    expect(report.get_by_text(headline).first).to_be_visible()
    expect(report.locator("svg").first).to_be_visible()


@pytest.mark.long  # the tests above look at the same pages of a made-up sweep; only here they are of the shipped one
def test_the_shipped_quickstart_looks_as_the_documentation_shows_it(site: Site) -> None:
    """The same pages with a real sweep, whose records hold all that a sweep publishes except its logs."""
    from accelsweep.tracking.publisher import publish

    shutil.copytree(EXAMPLE, site.folder.home, dirs_exist_ok=True)
    real = Site(SweepFolder(site.folder.home, "quickstart"), site.store, site.address, site.page)
    publish(real.folder, real.store)
    found = Findings.read(real.folder.findings)
    baseline = next(setting for setting in found.settings if setting.setting == found.baseline).label
    page = real.view(SETTINGS_VIEW)
    expect(real.row(baseline)).to_be_visible()
    expect(page.get_by_text(found.recommendation.headline).first).to_be_visible()
    real.keep("view")
    page = real.view(SETTINGS_VIEW, charts=True)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    real.keep("view-charts")
    page = real.view(REPEATS_VIEW, charts=True)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    real.keep("charts")
    real.all_runs()
    group = f"cannot run here ({found.outcomes['unsupported']})"
    real.row(group).get_by_role("button").first.click()
    unsupported = next(setting for setting in found.settings if not setting.measured)
    expect(real.row(run_name(unsupported.axes))).to_be_visible()
    real.keep("unsupported")
    real.row(group).get_by_role("button").first.click()
    expect(real.row(run_name(unsupported.axes))).to_have_count(0)
    real.row(baseline).get_by_role("button").first.click()
    expect(real.row(f"#0 {baseline}")).to_be_visible()
    real.keep("runs")


@pytest.mark.long  # tracking/test_live_publishing.py checks the store, the tests above the page; only here both
def test_runs_appear_while_the_sweep_goes_on(site: Site) -> None:
    going = build_example_sweep(site.folder.home, "going")
    waiting = going.home / "not yet"
    shutil.move(going.root / "runs", waiting)
    setting = next(
        setting.name for setting in Manifest.read(going.manifest).settings if setting.axes["batch_size"] == 32
    )
    command = [
        sys.executable,
        "-m",
        "accelsweep.tracking.live_publishing",
        str(going.root),
        "--follow",
        "--tracking-uri",
        site.store,
    ]
    follower = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        shutil.copytree(waiting / f"{setting}-r0", going.run(f"{setting}-r0"))
        _until(lambda: f"#0 {OTHER}" in _opened(site, "going"))
        shutil.copytree(waiting / f"{setting}-r1", going.run(f"{setting}-r1"))
        _until(lambda: f"#1 {OTHER}" in _opened(site, "going"))
        assert f"#2 {OTHER}" not in site.names()
    finally:
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(PATIENCE_SECONDS) == 0


def _opened(site: Site, name: str) -> list[str]:
    """Return what a sweep's list shows with the baseline's repeats unfolded; nothing while there is no such sweep."""
    try:
        site.page.set_default_timeout(4 * SECONDS)
        site.open(name)
        expect(site.row(OTHER)).to_be_visible()
        if f"#0 {OTHER}" not in site.names():
            site.row(OTHER).get_by_role("button").first.click()
            expect(site.row(f"#0 {OTHER}")).to_be_visible()
    except (sync_api.TimeoutError, AssertionError):  # the second is what `expect` raises
        return []
    return site.names()


def _until(condition: Callable[[], bool], attempts: int = 15) -> None:
    assert any(condition() for _ in range(attempts)), "it did not happen"
