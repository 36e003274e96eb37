"""Sizes found by a search are counts without noise, known to a bracket."""

from __future__ import annotations

from types import ModuleType

import pytest

from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.driver.finalize import _results_table
from accelsweep.records.estimates import Verdict
from accelsweep.records.findings import Certainty, Findings
from accelsweep.report.setting_table import settings_table

SETTINGS = ({"precision": "32-true"}, {"precision": "bf16-mixed"})


def findings_of(
    simulated: ModuleType, found: list[tuple[float, float]], above: float | None = 1.0, **options: object
) -> Findings:
    """Each pair holds a block's largest batches; `above` more do not fit, and None means that nothing was too large."""
    rows = []
    for block, pair in enumerate(found):
        for axes, batch in zip(SETTINGS, pair, strict=True):
            numbers = {"largest_batch": batch} | ({} if above is None else {"too_large_batch": batch + above})
            run = simulated.make_run(axes, block, 1.0, config={"task": "largest_batch"}, **numbers)
            del run.metrics["samples_per_second"]
            rows.append(run)
    return analyse(rows, simulated.make_manifest(SETTINGS, len(found), **options))


def test_equal_counts_in_every_block_are_exact_and_larger_is_no_faster(simulated: ModuleType) -> None:
    findings = findings_of(simulated, [(100.0, 190.0)] * 3)
    found = findings.settings[1]
    assert (findings.rate_metric, findings.rate_unit) == ("largest_batch", "samples")
    assert (found.verdict, found.rate.low, found.rate.high) == (Verdict.larger, 190.0, 190.0)
    assert (found.speedup.ratio.low, found.speedup.ratio.value, found.speedup.ratio.high) == (1.9, 1.9, 1.9)
    advice = findings.recommendation
    assert advice.headline == "bf16-mixed fits a batch 1.900x as large"
    assert advice.certainty is Certainty.sure
    assert "faster" not in advice.sentence
    assert findings.scaling == ()


def test_no_more_is_told_than_the_bracket_of_the_search_allows(simulated: ModuleType) -> None:
    """100 fits and 111 does not: the truth may be 110, and so may that of 105."""
    findings = findings_of(simulated, [(100.0, 105.0)] * 3, above=11.0)
    ratio = findings.settings[1].speedup.ratio
    assert ratio.low == pytest.approx(1.05 / 1.1, rel=1e-3)
    assert ratio.high == pytest.approx(1.05 * 1.1, rel=1e-3)
    assert findings.settings[1].verdict is Verdict.undecided


def test_batches_that_differ_between_repeats_have_an_interval(simulated: ModuleType) -> None:
    ratio = findings_of(simulated, [(100.0, 190.0), (101.0, 191.0), (99.0, 192.0)]).settings[1].speedup.ratio
    assert ratio.low < 1.9 < ratio.high
    assert ratio.low > 1.5


def test_a_smaller_batch_is_smaller_and_the_advice_stays(simulated: ModuleType) -> None:
    findings = findings_of(simulated, [(100.0, 50.0)] * 3)
    assert findings.settings[1].verdict is Verdict.smaller
    assert findings.recommendation.headline == "Stay with 32-bit: nothing fits a larger batch"
    assert "fits a batch more than 2 % larger" in findings.recommendation.detail


def test_equal_batches_are_the_same(simulated: ModuleType) -> None:
    assert findings_of(simulated, [(100.0, 100.0)] * 3).settings[1].verdict is Verdict.same


def test_a_search_that_nothing_ended_has_no_verdict_and_says_what_to_raise(simulated: ModuleType) -> None:
    found = findings_of(simulated, [(100.0, 190.0)] * 3, above=None).settings[1]
    assert found.verdict is Verdict.undecided
    assert "the search ended at measure.max_batch" in found.verdict_reason


def test_one_block_has_no_verdict(simulated: ModuleType) -> None:
    assert findings_of(simulated, [(100.0, 190.0)]).settings[1].verdict is Verdict.not_yet


def test_headings_name_the_size(simulated: ModuleType) -> None:
    findings = findings_of(simulated, [(100.0, 190.0)] * 3)
    assert _results_table(findings).headings[1:3] == ("largest batch", "ratio")
    table = settings_table(findings)
    assert [column.title for column in table.columns][1:3] == ["Largest batch (samples)", "Ratio"]
    assert table.caption.startswith("Measured settings, the largest first;")
    assert table.rows[0][1].text == "190"
