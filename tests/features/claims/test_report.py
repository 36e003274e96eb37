"""Claims in the report: tables, the figure of published values, lines of text, and the page over many sweeps."""

from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from accelsweep.features.claims.figure import published_figure
from accelsweep.features.claims.model import ClaimFinding, Claims, ClaimVerdict
from accelsweep.features.claims.page import Verdicts, write_verdicts
from accelsweep.features.claims.report import in_one_line, tables
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Certainty
from accelsweep.report.figures.figure import DARK, LIGHT, Figure, Skipped
from accelsweep.results import Doubt


def words(row):
    return [(entry.text, entry.detail) for entry in row]


def claim_finding(**changes):
    stated = {
        "id": "batch_size",
        "statement": "batches of 8 take 3x the time of batches of 64",
        "source": "a forum",
        "figure": None,
        "analogue": None,
        "metric": "samples_per_second",
        "claimed": "3x",
        "measured": Estimate(value=1.42, low=1.4, high=1.44, unit="1", confidence=0.95, count=3),
        "verdict": ClaimVerdict.less,
        "reason": "",
        "differs": ("that was another network",),
        "setting": "a",
        "against": "b",
        "labels": ("batch 64", "batch 8"),
    }
    return ClaimFinding(**(stated | changes))


def with_claims(findings, *figures):
    return findings.model_copy(update={"sections": {"claims": Claims(figures=figures)}})


def tables_by_name(findings):
    return {table.name: table for table in tables(findings)}


def test_claims_have_a_table_if_the_experiment_states_some(findings):
    assert "claims" not in tables_by_name(findings)
    absent = {"measured": None, "labels": (), "verdict": ClaimVerdict.not_testable, "reason": "there is no GPU"}
    claims = (claim_finding(), claim_finding(**absent))
    table = tables_by_name(with_claims(findings, *claims))["claims"]
    assert words(table.rows[0]) == [
        ("batches of 8 take 3x the time of batches of 64", "batch_size"),
        ("3x", ""),
        ("1.42x [1.40, 1.44]", "batch 64 against batch 8"),
        ("less than claimed", ""),
        ("none", ""),
    ]
    assert words(table.rows[1])[2:4] == [("not measured", ""), ("not testable here", "there is no GPU")]
    assert (table.data[0]["measured.low"], table.data[1]["measured.low"]) == (1.4, None)


def test_the_reasons_for_a_different_result_are_listed_once_per_claim(findings):
    claims = (claim_finding(figure="rate"), claim_finding(figure="memory"), claim_finding(analogue="threads"))
    other = claim_finding(id="vgg16", differs=())
    table = tables_by_name(with_claims(findings, *(*claims, other)))["reasons"]
    assert [words(row) for row in table.rows] == [
        [("batch_size", ""), ("a forum", ""), ("that was another network", "")],
        [("vgg16", ""), ("a forum", ""), ("no reason is known", "")],
    ]


def test_an_analogue_has_its_own_row_and_is_marked_in_its_verdict(findings):
    analogue = claim_finding(analogue="threads in place of GPUs", figure="rate", verdict=ClaimVerdict.agrees)
    (row,) = tables_by_name(with_claims(findings, *(analogue,)))["claims"].rows
    assert words(row)[0] == ("batch_size, analogue: rate", "threads in place of GPUs")
    assert words(row)[3] == ("analogue: agrees", "")


def test_published_values_have_their_own_table(findings):
    assert "published" not in tables_by_name(with_claims(findings, *(claim_finding(),)))
    ours = Estimate(value=0.004, low=0.0039, high=0.0041, unit="s", confidence=0.95, count=3)
    net = {"claimed": "0.024 to 0.037 s", "against": None, "measured": ours, "labels": ("1 GPU",)}
    caffe = claim_finding(figure="FCN-5", published={"Caffe": 0.037, "TF": 0.024}, **net)
    torch = claim_finding(figure="LSTM-32", published={"Torch": 0.096}, **{**net, "measured": None, "reason": "no GPU"})
    table = tables_by_name(with_claims(findings, *(caffe, torch, claim_finding())))["published"]
    assert [column.title for column in table.columns] == ["Figure", "Caffe", "TF", "Torch", "Here"]
    assert words(table.rows[0])[1:] == [("0.037", ""), ("0.024", ""), ("-", ""), ("4.0 ms [3.9, 4.1]", "1 GPU")]
    assert words(table.rows[1])[4] == ("not measured", "no GPU")
    assert "a forum" in table.caption


def test_a_claim_in_one_line():
    assert in_one_line(claim_finding()) == ("batch_size: claimed 3x, measured 1.42x [1.40, 1.44], less than claimed")
    absent = claim_finding(measured=None, verdict=ClaimVerdict.not_testable, reason="no GPU", figure="rate")
    assert in_one_line(absent) == "batch_size, rate: claimed 3x, not testable here (no GPU)"
    never = Estimate(value=0.0, low=0.0, high=0.616, unit="of the runs", confidence=0.95, count=5)
    shared = claim_finding(measured=never, metric="outcome.diverged", claimed="1", against=None)
    assert in_one_line(shared) == ("batch_size: claimed 1, measured 0.0 of the runs [0.0, 0.7], less than claimed")


def test_a_claim_shows_the_doubts_of_its_runs(findings):
    busy = Doubt(code="busy_cpu", message="others used the CPU", remedy="stop them")
    claim = claim_finding(doubts=(busy, replace(busy, message="and again")))
    (row,) = tables_by_name(with_claims(findings, *(claim,)))["claims"].rows
    assert (row[4].text, row[4].tone) == ("busy_cpu", "doubt")
    assert in_one_line(claim).endswith("less than claimed; doubts: busy_cpu")


def published_claim(value, published, **changes):
    """Return a claim with published values and, unless `value` is None, a measured one."""
    here = value and Estimate(value=value, low=value * 0.9, high=value * 1.1, unit="1/s", confidence=0.95, count=3)
    stated = {"id": "rate", "figure": "images per second", "claimed": "no figure", "verdict": ClaimVerdict.measured}
    return claim_finding(
        **(stated | {"measured": here, "against": None, "labels": ("c",), "published": published} | changes)
    )


def drawn(findings, *claims):
    return published_figure(with_claims(findings, *claims))


def test_a_published_value_is_drawn_relative_to_ours_without_an_interval(findings):
    figure = drawn(findings, published_claim(100.0, {"timm, RTX 3090": 250.0, "me": 50.0}))
    assert isinstance(figure, Figure)
    ours, *others = figure.rows
    assert (ours["kind"], ours["ratio"], ours["low"], ours["high"]) == ("here", 1.0, 0.9, pytest.approx(1.1))
    assert [(row["name"], row["ratio"], row["low"]) for row in others] == [
        ("timm, RTX 3090", 2.5, None),
        ("me", 0.5, None),
    ]
    assert figure.alt == "2 published values next to 1 value measured here."
    assert set(figure.columns) <= set(ours)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_published_values_have_their_own_marker(findings, palette):
    figure = drawn(findings, published_claim(100.0, {"me": 50.0}), published_claim(3.0, {"me": 4.0}, figure="other"))
    chart = figure.draw(palette).to_dict(validate=True)
    marks = [layer["mark"] for layer in chart["layer"] if layer["mark"]["type"] == "point"]
    assert [(mark.get("shape"), mark["filled"]) for mark in marks] == [(None, True), ("diamond", False)]


def test_a_figure_without_a_measured_value_is_skipped_and_counted(findings):
    figure = drawn(findings, published_claim(100.0, {"me": 50.0}), published_claim(None, {"me": 4.0}))
    assert figure.note == "1 of 2 figures were not measured here."
    assert drawn(findings, published_claim(None, {"me": 4.0})) == Skipped(
        "published", "no figure with published values was measured here"
    )


def test_without_published_values_the_reason_names_the_key(findings):
    assert "report.claims" in drawn(findings, published_claim(100.0, {})).reason


def page_claim(name, verdict, measured=None, **changes):
    """Return a claim of the page over many sweeps, measured on a GPU or not at all."""
    stated = {
        "id": name,
        "statement": f"{name} is faster",
        "source": "a forum <script>",
        "claimed": "more than 1x",
        "measured": measured and Estimate(value=measured, low=1.9, high=2.2, unit="1", confidence=0.95, count=3),
        "verdict": verdict,
        "reason": "" if measured else "no GPU",
        "differs": ("other hardware",),
        "setting": "a" if measured else None,
        "against": "b" if measured else None,
        "labels": ("cuda", "cpu") if measured else (),
    }
    return claim_finding(**(stated | changes))


WHY_NOT = {"claims-vgg16": "it was not selected", "claims-matmul": "the time limit (--minutes 30) was reached"}


@pytest.fixture
def sweeps(findings):
    """Two sweeps: one claim with an analogue that agrees, one that was not run."""
    untestable = page_claim("vgg16", ClaimVerdict.not_testable)
    analogue = page_claim("vgg16", ClaimVerdict.agrees, 2.0, analogue="threads in place of GPUs")
    waiting = page_claim("matmul", ClaimVerdict.not_run, published={"Caffe": 0.5})
    return [
        findings.model_copy(
            update={
                "sweep": "claims-vgg16",
                "sections": {"claims": Claims(figures=(untestable, analogue))},
                "command": "run one",
            }
        ),
        findings.model_copy(
            update={"sweep": "claims-matmul", "sections": {"claims": Claims(figures=(waiting,))}, "command": "run two"}
        ),
    ]


def test_the_headline_is_the_answer_and_the_next_sentence_counts_claims_without_analogues(sweeps):
    content = Verdicts(tuple(sweeps), WHY_NOT)
    assert content.headline == "No claim could be tested here"
    assert content.detail == (
        "2 claims with 2 figures, 1 not testable here, 1 not run. In addition, 1 figure of smaller analogues."
    )


def test_the_headline_says_how_many_figures_agree_and_what_the_others_do(findings):
    verdicts = (ClaimVerdict.agrees, ClaimVerdict.less, ClaimVerdict.undecided)
    figures = tuple(page_claim(f"c{number}", verdict, 2.0) for number, verdict in enumerate(verdicts))
    one = findings.model_copy(update={"sections": {"claims": Claims(figures=figures)}})
    assert Verdicts((one,), {}).headline == "1 of 3 claimed figures agree; 1 less than claimed, 1 undecided"


@pytest.mark.parametrize(
    ("verdicts", "headline", "certainty"),
    [
        ([ClaimVerdict.agrees], "c0: 2.0x as fast, claimed more than 1x: agrees", Certainty.sure),
        (
            [ClaimVerdict.agrees, ClaimVerdict.less],
            "1 of 2 claimed figures agrees; c1: 2.0x as fast, claimed more than 1x: less than claimed",
            Certainty.sure,
        ),
        ([ClaimVerdict.undecided], "c0: 2.0x as fast, claimed more than 1x: undecided", Certainty.undecided),
        (
            [ClaimVerdict.undecided, ClaimVerdict.agrees, ClaimVerdict.less],
            "1 of 3 claimed figures agrees, 1 undecided; c2: 2.0x as fast, claimed more than 1x: less than claimed",
            Certainty.sure,
        ),
    ],
)
def test_a_sweep_of_claims_is_headed_by_what_was_found_about_them(findings, verdicts, headline, certainty):
    figures = tuple(page_claim(f"c{number}", verdict, 2.0) for number, verdict in enumerate(verdicts))
    advice = Claims(figures=figures).recommendation(None, findings.recommendation)
    assert (advice.headline, advice.certainty) == (headline, certainty)
    assert advice.detail.startswith(f"Measured here: 2.0x [1.9, 2.2]. {findings.recommendation.headline}")
    assert advice.choice == findings.recommendation.choice


def test_a_claim_that_cannot_be_tested_heads_its_sweep_with_the_reason(findings):
    claims = Claims(figures=(page_claim("vgg16", ClaimVerdict.not_testable),))
    advice = claims.recommendation(None, findings.recommendation)
    assert advice.headline == "vgg16 cannot be tested here: no GPU"
    assert advice.certainty is Certainty.no_answer


def test_a_projection_never_counts_as_tested(sweeps, tmp_path):
    span = {"value": 30, "low": 20, "high": 45}
    one = page_claim("cost", ClaimVerdict.more, projected=span, board="l4", reason="")
    page = write_verdicts(tmp_path, [sweeps[0].model_copy(update={"sections": {"claims": Claims(figures=(one,))}})], {})
    assert "1 claim with 1 figure, 1 only projected." in page.read_text()
    assert "No claim could be tested here" in page.read_text()
    text = (page.parent / "report.md").read_text()
    assert "projected: more than claimed" in text
    assert "projected onto l4: about 30x, 20 to 45" in text


def test_claims_that_were_not_tested_come_last_and_are_folded(sweeps):
    claims, _, _, untested = Verdicts(tuple(sweeps), WHY_NOT).tables
    assert [row[0].text for row in claims.rows] == ["vgg16 is faster", "vgg16, analogue"]
    assert [row[0].text for row in untested.rows] == ["matmul is faster"]
    assert (untested.summary, untested.folded) == (("1 figure: 1 not run.",), "Show the 1 figure")
    assert ("Source", "a forum <script>") in [(line.name, line.text) for line in untested.details[0]]
    few, *_ = Verdicts(tuple(sweeps[1:]), WHY_NOT).tables
    assert [row[0].text for row in few.rows] == ["matmul is faster"], "a few that were asked for are not folded"
    many, published, rest = Verdicts(tuple(sweeps[1:] * 13), WHY_NOT).tables
    assert (len(many.rows), len(many.data), len(rest.rows)) == (0, 13, 13)
    assert published.folded == "Show what others published"


def test_a_claim_that_was_not_run_has_the_reason_and_the_command_that_runs_it(sweeps):
    assert Verdicts(tuple(sweeps), WHY_NOT).waiting == (
        "matmul was not run: the time limit (--minutes 30) was reached; run two",
    )


def test_every_claim_is_on_the_page_in_markdown_and_in_the_data(sweeps, tmp_path):
    page = write_verdicts(tmp_path, sweeps, WHY_NOT)
    assert page == tmp_path / "reports" / "claims" / "index.html"
    markdown = (page.parent / "report.md").read_text()
    rendered = MarkdownIt("commonmark").enable("table").render(markdown)
    for text in (page.read_text(), rendered):
        for words in ("vgg16 is faster", "matmul is faster", "analogue: agrees", "2.0x [1.9, 2.2]", "other hardware"):
            assert words in text, words
        assert "a forum <script>" not in text
    rows = [(page.parent / f"{name}.csv").read_text().splitlines()[1:] for name in ("claims", "untested")]
    assert [len(lines) for lines in rows] == [3, 1]
    assert "Caffe" in (page.parent / "published.csv").read_text()


def test_the_page_has_no_script_and_links_to_each_sweep(sweeps, tmp_path):
    html = write_verdicts(tmp_path, sweeps, WHY_NOT).read_text()
    assert "<script" not in html
    assert 'href="../claims-vgg16/index.html"' in html


def test_the_same_findings_give_the_same_bytes(sweeps, tmp_path):
    first = write_verdicts(tmp_path / "a", sweeps, WHY_NOT).read_bytes()
    assert write_verdicts(tmp_path / "b", sweeps, WHY_NOT).read_bytes() == first
