"""The page over the claims of many sweeps: every claim a row, what was not run said, and the same bytes each time."""

import pytest
from markdown_it import MarkdownIt

from accelsweep.features.claims.model import ClaimFinding, Claims, ClaimVerdict
from accelsweep.features.claims.report import Verdicts, write_verdicts
from accelsweep.records.estimates import Estimate

WHY_NOT = {"claims-vgg16": "it was not asked for", "claims-matmul": "the 30 minutes were spent"}


def figure(name, verdict, measured=None, **changes):
    stated = {
        "id": name,
        "statement": f"{name} is faster",
        "source": "a forum <script>",
        "figure": None,
        "analogue": None,
        "metric": "samples_per_second",
        "claimed": "more than 1x",
        "measured": measured and Estimate(value=measured, low=1.9, high=2.2, unit="1", confidence=0.95, count=3),
        "verdict": verdict,
        "reason": "" if measured else "no GPU",
        "differs": ("other hardware",),
        "cell": "a" if measured else None,
        "against": "b" if measured else None,
        "labels": ("cuda", "cpu") if measured else (),
    }
    return ClaimFinding.model_validate(stated | changes)


@pytest.fixture
def sweeps(findings):
    """Two sweeps: one claim with an analogue that agrees, one that was not run."""
    untestable = figure("vgg16", ClaimVerdict.not_testable)
    analogue = figure("vgg16", ClaimVerdict.agrees, 2.0, analogue="threads in place of GPUs")
    waiting = figure("matmul", ClaimVerdict.not_run, published={"Caffe": 0.5})
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


def test_the_first_sentence_counts_claims_and_leaves_analogues_apart(sweeps):
    assert Verdicts(tuple(sweeps), WHY_NOT).sentence == (
        "2 claims with 2 figures: 0 tested here, 1 not testable here, 1 not run. "
        "Beside them 1 figure of smaller analogues."
    )


def test_a_projection_never_counts_as_tested(sweeps, tmp_path):
    span = {"value": 30, "low": 20, "high": 45}
    one = figure("cost", ClaimVerdict.more, projected=span, board="l4", reason="")
    page = write_verdicts(tmp_path, [sweeps[0].model_copy(update={"sections": {"claims": Claims(figures=(one,))}})], {})
    assert "1 claim with 1 figure: 0 tested here, 1 only projected." in page.read_text()
    text = (page.parent / "report.md").read_text()
    assert "projected: more than claimed" in text
    assert "projected onto l4: about 30x, 20 to 45" in text


def test_a_claim_that_found_no_time_says_so_with_the_command_that_runs_it(sweeps):
    assert Verdicts(tuple(sweeps), WHY_NOT).waiting == ("matmul was not run: the 30 minutes were spent; run two",)


def test_every_claim_stands_on_the_page_in_markdown_and_in_the_data(sweeps, tmp_path):
    page = write_verdicts(tmp_path, sweeps, WHY_NOT)
    assert page == tmp_path / "reports" / "claims" / "index.html"
    markdown = (page.parent / "report.md").read_text()
    rendered = MarkdownIt("commonmark").enable("table").render(markdown)
    for text in (page.read_text(), rendered):
        for words in ("vgg16 is faster", "matmul is faster", "analogue: agrees", "2.0x [1.9, 2.2]", "other hardware"):
            assert words in text, words
        assert "a forum <script>" not in text
    assert len((page.parent / "claims.csv").read_text().splitlines()) == 4
    assert "Caffe" in (page.parent / "published.csv").read_text()


def test_the_page_runs_no_script_and_leads_to_each_sweep(sweeps, tmp_path):
    html = write_verdicts(tmp_path, sweeps, WHY_NOT).read_text()
    assert "<script" not in html
    assert 'href="../claims-vgg16/index.html"' in html


def test_the_same_findings_give_the_same_bytes(sweeps, tmp_path):
    first = write_verdicts(tmp_path / "a", sweeps, WHY_NOT).read_bytes()
    assert write_verdicts(tmp_path / "b", sweeps, WHY_NOT).read_bytes() == first
