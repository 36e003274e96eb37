"""The parsed page: structure, escaping, the first screen, and that it makes no request."""

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from accelsweep.records.findings import Certainty, Recommendation
from accelsweep.report.content import build_content
from accelsweep.report.html_page import chart_libraries, render_page
from accelsweep.report.markdown import render_markdown
from accelsweep.report.table_model import MAX_ROWS
from accelsweep.results import Doubt

pytestmark = pytest.mark.heavy

VOID = {"meta", "img", "br", "input", "link", "hr"}


class Page(HTMLParser):
    """A parsed page: elements as (tag, attributes, text inside), in document order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.stack = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        if tag not in VOID:
            self.stack.append(element)

    def handle_endtag(self, tag):
        assert self.stack.pop()[0] == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        for element in self.stack:
            element[2] += data

    def unzipped(self, name):
        (element,) = self.all("script", id=name)
        return gzip.decompress(base64.b64decode(element[2])).decode()

    def all(self, tag, **attributes):
        wanted = {key.rstrip("_"): value for key, value in attributes.items()}
        return [e for e in self.elements if e[0] == tag and wanted.items() <= e[1].items()]


@pytest.fixture(scope="module")
def rendered():
    """A cache of pages by their findings: most tests use the ordinary one."""
    return {}


@pytest.fixture
def render(sweep, rendered):
    def render(findings):
        key = findings.sealed()
        if key not in rendered:
            content = build_content(findings, sweep)
            pictures = {figure.name: "<svg></svg>" for figure in content.figures}
            rendered[key] = render_page(content, pictures)
        return rendered[key]

    return render


def test_every_element_is_closed_and_every_link_inside_the_page_has_its_target(render, findings):
    page = Page(render(findings))
    assert page.stack == []
    targets = {element[1]["id"] for element in page.elements if "id" in element[1]}
    assert len(targets) == sum("id" in element[1] for element in page.elements)
    inner = {link[1]["href"][1:] for link in page.all("a") if link[1]["href"].startswith("#")}
    assert inner <= targets
    labelled = {e[1]["aria-labelledby"] for e in page.elements if "aria-labelledby" in e[1]}
    assert labelled <= targets


def test_the_first_screen_has_the_answer_its_certainty_and_its_provenance(render, findings):
    page = Page(render(findings))
    assert page.all("h1")[0][2] == "Batch 128, 32-bit, 2 processes is 2.25x as fast sure"
    answer = page.all("section", id="answer")[0][2]
    for words in (
        "2.22x to 2.29x (95 %), compared with batch 32, 32-bit, 1 process.",
        "To settle it:",
        "accelsweep run experiment=quickstart --add-repeats 2",
        "Recommended: batch 128, 32-bit, 2 processes",
        "18.0k samples/s",
        "baseline 8,000 samples/s",
        "Other work kept the processor busy busy_cpu: stop other work and measure again.",
        "SmallCNN",
        "example-host, 4 threads, 16.0 GiB",
        "torch 2.13.0",
        "commit c7a8931213 with local changes",
        "2026-01-05",
        "accelsweep 0.1.0",
    ):
        assert words in answer
    assert [tile[2] for tile in page.all("dt")][:4] == ["Rate", "Memory", "Accuracy", "Cost"]
    assert "add prices=NAME" in answer


def test_the_next_section_has_the_scope_and_the_alternatives(render, findings):
    sure = Page(render(findings)).all("section", id="sure")[0][2]
    for words in (
        "21 of 24 runs measured",
        "3 repeats planned",
        "95 % confidence in all 7 comparisons at once",
        "differences below 2 % are treated as no difference",
        "expected power: 8 of 10 such sweeps would show a true difference of 4.3 %",
        "Smallest memory that is faster",
        "Other processes used 35 % of the CPU.",
    ):
        assert words in sure


def test_what_to_type_stands_before_the_first_figure(render, findings):
    page = render(findings)
    assert page.index("--add-repeats 2") < page.index('id="figure-speedup"')


def test_accuracy_that_is_open_is_the_chip_and_the_fastest_setting_has_the_tiles(render, findings):
    fastest = findings.recommendation.choice.model_copy(update={"title": "Fastest"})
    advice = findings.recommendation.model_copy(
        update={"choice": None, "fastest": fastest, "certainty": Certainty.quality_open}
    )
    page = Page(render(findings.model_copy(update={"recommendation": advice})))
    assert page.all("span", class_="chip quality-open")[0][2] == "accuracy open"
    answer = page.all("section", id="answer")[0][2]
    assert "Fastest: batch 128, 32-bit, 2 processes" in answer
    assert "18.0k samples/s" in answer


def test_a_sweep_without_numbers_says_why_once_and_has_no_empty_sections(render, findings):
    unmeasured = [setting.model_copy(update={"measured": 0, "rate": None}) for setting in findings.settings]
    page = Page(render(findings.model_copy(update={"settings": tuple(unmeasured)})))
    sections = {section[1]["id"] for section in page.all("section")}
    assert {"answer", "unmeasured", "method"} <= sections
    assert not {"sure", "figures"} & sections


def test_the_command_that_settles_it_has_its_time_if_known(render, findings):
    known = {"settle_minutes": 4.4, "settle_blocks": 2}
    advice = findings.recommendation.model_copy(update=known)
    page = Page(render(findings.model_copy(update={"recommendation": advice})))
    assert page.all("p", class_="settle")[0][2] == "To settle it, 2 more repeats, about 4 minutes:"
    assert Page(render(findings)).all("p", class_="settle")[0][2] == "To settle it:"


def test_a_disturbance_is_the_main_doubt_and_without_doubts_there_is_none(render, findings):
    small = Doubt(code="few_repeats", message="3 repeats", remedy="add some")
    busy = Doubt(code="busy_cpu", message="2 of 3 runs: others kept it busy", remedy="stop them")
    settings = [setting.model_copy(update={"doubts": (small, busy)}) for setting in findings.settings]
    page = Page(render(findings.model_copy(update={"settings": tuple(settings)})))
    words = "Other work kept the processor busy in 2 of 3 runs busy_cpu: stop them."
    assert page.all("p", class_="amber")[0][2] == words
    sound = [setting.model_copy(update={"doubts": ()}) for setting in findings.settings]
    clean = findings.model_copy(update={"settings": tuple(sound), "doubts": ()})
    assert not Page(render(clean)).all("p", class_="amber")


def test_without_a_recommendation_the_page_says_why_and_shows_the_baseline(render, findings):
    advice = Recommendation(
        choice=None, sentence="Nothing to recommend: no run.", alternatives=(), settle="accelsweep run"
    )
    page = Page(render(findings.model_copy(update={"recommendation": advice})))
    assert page.all("h1", class_="advice")[0][2] == "Nothing to recommend: no run. undecided"
    assert "Baseline: batch 32, 32-bit, 1 process" in page.all("section", id="answer")[0][2]
    unmeasured = [setting.model_copy(update={"measured": 0}) for setting in findings.settings]
    empty = findings.model_copy(update={"recommendation": advice, "settings": tuple(unmeasured)})
    assert not Page(render(empty)).all("dl")


def test_each_figure_has_a_caption_an_alternative_text_its_data_and_a_picture_without_scripts(render, findings):
    page = Page(render(findings))
    figures = page.all("figure")
    assert len(figures) == len(page.all("noscript")) == 11
    assert len(page.all("figcaption")) == 10, "the first figure is explained below the first screen"
    for name in (figure[1]["id"].removeprefix("figure-") for figure in figures):
        assert page.all("div", id=f"chart-{name}", role="img")[0][1]["aria-label"].endswith(".")
        assert page.all("a", href=f"{name}.csv")
        assert page.all("a", href=f"{name}.svg")


def test_the_page_has_landmarks_captions_and_header_settings(render, findings):
    page = Page(render(findings))
    assert page.all("html")[0][1]["lang"] == "en"
    assert [len(page.all(tag)) for tag in ("main", "header", "nav", "h1")] == [1, 1, 1, 1]
    assert len(page.all("table")) == len(page.all("caption")) == 5
    assert len(page.all("th", scope="row")) >= 7
    assert page.elements[page.elements.index(page.all("body")[0]) + 1][1]["class"] == "skip"


def test_a_long_table_has_its_first_rows_as_html_and_the_others_as_packed_data(render, sweep, findings):
    measured = [setting for setting in findings.settings if setting.rate]
    many = [measured[k % len(measured)].model_copy(update={"label": f"k={k}"}) for k in range(MAX_ROWS + 50)]
    long = findings.model_copy(update={"settings": tuple(many)})
    text, content = render(long), build_content(long, sweep)
    data = json.loads(Page(text).unzipped("data"))
    beyond, opened = data["beyond"], data["opened"]
    assert beyond.keys() == {"settings", "runs"}
    (settings,) = (table for table in content.tables if table.name == "settings")
    names, packed = [row[0].text for row in settings.rows], beyond["settings"][0]["text"]
    assert [packed["of"][place] for place in packed["at"]] == names[MAX_ROWS:]
    assert len(opened["settings"]) == 50
    assert opened["settings"][0][0]["name"] == "Memory"
    for words in (text, render_markdown(content).replace("\\", "")):
        assert f"The first {MAX_ROWS} of {MAX_ROWS + 50} rows; the CSV contains all." in words
        table = words.partition("hold simultaneously at")[2].partition("Not measured")[0]
        assert names[MAX_ROWS - 1] in table
        assert names[MAX_ROWS] not in table


def test_the_page_makes_no_request(render, findings):
    page = Page(render(findings))
    for tag, attributes, _ in page.elements:
        assert "src" not in attributes, tag
        assert tag not in ("link", "iframe", "object", "base")
        assert not re.match(r"(https?:)?//", attributes.get("href") or "")


def test_only_our_own_scripts_may_run(render, findings):
    page = Page(render(findings))
    policy = page.all("meta", **{"http-equiv": "Content-Security-Policy"})[0][1]["content"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy
    (script,) = (script for script in page.all("script") if "type" not in script[1])
    texts = (script[2], page.unzipped("libraries"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    assert all(f"'sha256-{value}'" in policy for value in hashes)


def test_the_chart_libraries_are_in_the_page_compressed_to_half_of_their_size(render, findings):
    page, libraries = Page(render(findings)), chart_libraries()
    assert page.unzipped("libraries") == libraries
    (embedded,) = page.all("script", id="libraries")
    assert len(embedded[2]) < len(libraries) / 2


def test_pictures_without_scripts_describe_themselves_once(sweep, findings):
    content = build_content(findings, sweep)
    mark = '<svg><path role="graphics-symbol" aria-label="rate: 12" d="M0,0"/><text>role="img" &lt;</text></svg>'
    page = render_page(content, {figure.name: mark for figure in content.figures})
    assert '<svg><path d="M0,0"/><text>role="img" &lt;</text></svg>' in page
    assert "graphics-symbol" not in page


def test_hostile_texts_are_rendered_as_text(render, hostile_findings):
    page = Page(render(hostile_findings))
    assert page.stack == []
    assert len(page.all("script")) == 3
    assert not page.all("img")
    assert not [e for e in page.elements if any(name.startswith("on") for name in e[1])]
    charts = json.loads(page.unzipped("data"))["charts"]
    assert "</script><script>window.hacked=1</script>" in charts["speedup"]["rows"]["label"]["of"][0]
    assert "</script><script>window.hacked=1</script>" in page.all("h1", class_="advice")[0][2]


def test_the_smallest_visible_effect_is_told_as_expected_power_unless_it_is_absurd(sweep, findings):
    def scope(effect):
        return build_content(findings.model_copy(update={"smallest_visible_effect": effect}), sweep).scope[-1]

    assert scope(0.403) == "expected power: 8 of 10 such sweeps would show a true difference of 40.3 %"
    assert scope(1.31) == "expected power: 8 of 10 such sweeps would show a true ratio of 2.31x"
    assert "power" not in scope(253017.0)


def test_advice_for_several_kinds_of_hardware_has_its_own_heading(render, findings):
    each = Recommendation(
        choice=None, sentence="Side by side.", alternatives=findings.recommendation.alternatives, settle=None
    )
    page = render(findings.model_copy(update={"recommendation": each}))
    assert "On each kind of hardware" in page
    assert '<h2 class="small">Alternatives' not in page
