"""The description of a setting says what was found before anything else, in a sentence that stands alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from accelsweep.records.estimates import Estimate, Speedup, Verdict
from accelsweep.records.findings import Findings, RunPoint, SettingFinding
from accelsweep.records.layout import SweepFolder
from accelsweep.results import Doubt, Outcome
from accelsweep.tracking.setting_notes import interval_text, is_disturbed, memory_of, setting_note

BUSY = Doubt(code="busy_cpu", message="Others used the CPU.", remedy="Stop them.")


@pytest.fixture
def findings(sweep: SweepFolder, with_findings: Callable[..., Findings]) -> Findings:
    """Invented findings whose first setting is the baseline `slow`, and whose second is `fast`."""
    made = with_findings(sweep)
    baseline, fast, *_ = made.settings
    baseline = baseline.model_copy(update={"label": "slow", "verdict": Verdict.baseline, "speedup": None})
    fast = fast.model_copy(update={"label": "fast"})
    return made.model_copy(update={"settings": (baseline, fast)})


def ratio(value: float, low: float | None, high: float | None, reason: str | None = None) -> Speedup:
    estimate = Estimate(value=value, low=low, high=high, unit="1", confidence=0.99, count=3, reason=reason)
    return Speedup(ratio=estimate, paired=True)


def first_line(findings: Findings, **changes: Any) -> str:
    """Return the first line of the description of `fast` with these changes."""
    return setting_note(findings, [findings.settings[1].model_copy(update=changes)], None).splitlines()[0]


def test_a_setting_is_n_times_as_fast_as_the_baseline_with_its_interval(findings: Findings) -> None:
    line = first_line(findings, speedup=ratio(1.8, 1.61, 1.99))
    assert line == "**fast is 1.8x as fast as slow** (1.6x to 2.0x, 95 %)."


def test_a_ratio_without_an_interval_says_why_and_a_useless_interval_claims_nothing(findings: Findings) -> None:
    single = first_line(findings, speedup=ratio(1.8, None, None, "one block"))
    assert single == "**fast is 1.80x as fast as slow** (no interval: one block)."
    assert first_line(findings, speedup=ratio(1.8, 0.1, 30.0)) == "**fast against slow: not known yet.**"
    assert first_line(findings, speedup=ratio(0.1, 0.02, 0.5)) == "**fast against slow: below 0.50x.**"
    assert interval_text(ratio(1.8, 0.1, 30.0).ratio) is None


@pytest.mark.parametrize(
    ("rate", "line"),
    [
        ("largest_batch", "**fast fits a batch 1.8x as large as slow** (1.6x to 2.0x, 95 %)."),
        ("processes_per_hour", "**fast runs the whole process 1.8x as fast as slow** (1.6x to 2.0x, 95 %)."),
    ],
)
def test_sizes_and_whole_processes_are_named(findings: Findings, rate: str, line: str) -> None:
    other = findings.model_copy(update={"rate_metric": rate})
    assert first_line(other, speedup=ratio(1.8, 1.61, 1.99)) == line


def test_the_link_to_the_report_comes_first_and_rate_accuracy_and_memory_follow(findings: Findings) -> None:
    lines = setting_note(findings, [findings.settings[1]], "#/experiments/1/runs/7/artifacts/report/index.html")
    first, _, second, *_ = lines.splitlines()
    assert first.startswith(
        "[Open the report](#/experiments/1/runs/7/artifacts/report/index.html) \N{MIDDLE DOT} **fast is "
    )
    assert second == "100 samples/s [90, 110]. Accuracy 0.95 [0.85, 1.05], undecided. Memory 0.0466 GiB."


def test_a_disturbed_setting_says_so_and_gives_no_number(findings: Findings) -> None:
    disturbed = findings.settings[1].model_copy(update={"verdict": Verdict.disturbed})
    note = setting_note(findings, [disturbed], None)
    assert note.startswith("**fast: no result, because the measurement was disturbed.**")
    assert "samples/s" not in note
    assert "GiB" not in note


def test_a_baseline_is_disturbed_if_most_of_its_runs_were(findings: Findings) -> None:
    baseline = findings.settings[0]

    def runs(disturbed: int) -> tuple[RunPoint, ...]:
        return tuple(
            RunPoint(
                run=f"slow-r{number}", repeat=number, block="b", position=0, outcome=Outcome.measured, reason=None,
                rate=100.0, quality=None, started_at=None, doubts=(BUSY,) if number < disturbed else (),
            )
            for number in range(4)
        )  # fmt: skip

    def of(disturbed: int) -> SettingFinding:
        return baseline.model_copy(update={"runs": runs(disturbed)})

    assert [is_disturbed(of(count)) for count in (0, 2, 3)] == [False, False, True]
    assert "its own runs were disturbed" in setting_note(findings, [of(3)], None).splitlines()[0]
    assert setting_note(findings, [of(2)], None).startswith("**slow is the baseline**")


def test_memory_is_called_a_peak_only_where_it_is_one(findings: Findings) -> None:
    assert memory_of(findings, findings.settings[0]) == {"memory_gib": 0.04657}
    summary = replace(findings.settings[0].metrics["host_pss_bytes"], median=2.0**31)
    peaks = [
        setting.model_copy(update={"metrics": setting.metrics | {"peak_memory_reserved_bytes": summary}})
        for setting in findings.settings
    ]
    on_gpu = findings.model_copy(update={"settings": tuple(peaks)})
    assert memory_of(on_gpu, peaks[0]) == {"peak_memory_gib": 2.0}
    mixed = findings.model_copy(update={"settings": (peaks[0], findings.settings[1])})
    assert memory_of(mixed, peaks[0]) == {"memory_gib": 0.04657}, "the two are compared by what both have"
