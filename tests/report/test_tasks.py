"""Reports of other tasks than training throughput: times to a target, misses, latencies, operations."""

from __future__ import annotations

import pytest

from accelsweep.records.estimates import Estimate, Summary, Verdict
from accelsweep.report.content import build_content
from accelsweep.report.figures.rate import heatmap_figure, throughput_figure
from accelsweep.report.formatting import number
from accelsweep.report.markdown import render_markdown
from accelsweep.report.report_tables import runs_table
from accelsweep.report.setting_table import settings_table

MISSED = "target val_accuracy >= 0.99 not reached within 3000 samples (best 0.81)"


def summary(value, unit, reason=None):
    return Summary(median=value, minimum=value, maximum=value, count=3 if value else 0, unit=unit, reason=reason)


def estimate(value, unit):
    return Estimate(value=value, low=0.98 * value, high=1.02 * value, unit=unit, confidence=0.95, count=3)


@pytest.fixture
def aimed(findings):
    """Every setting reaches the target in 6 min for 0.1 USD, except the second, which misses it in all three runs."""

    def finding(number, setting):
        if setting.rate is None:
            return setting
        if number == 1:
            missed = {name: summary(None, unit, MISSED) for name, unit in (("time_to_target_seconds", "s"),)}
            changes = {"rate": None, "speedup": None, "verdict": Verdict.not_measured, "verdict_reason": MISSED}
            return setting.model_copy(update={**changes, "metrics": {**setting.metrics, **missed}})
        reached = {"time_to_target_seconds": summary(360.0, "s")}
        return setting.model_copy(
            update={
                "rate": estimate(10.0, "results/h"),
                "time_to_target": estimate(360.0, "s"),
                "costs": {"usd_per_result": estimate(0.1, "USD")},
                "metrics": {**setting.metrics, **reached},
            }
        )

    settings = tuple(finding(number, setting) for number, setting in enumerate(findings.settings))
    return findings.model_copy(
        update={"settings": settings, "rate_metric": "results_per_hour", "rate_unit": "results/h"}
    )


def detail(table, row, name):
    return next(line.text for line in table.details[row] if line.name == name)


def column(table, title):
    index = [column.title for column in table.columns].index(title)
    return [(row[index].text, row[index].detail) for row in table.rows]


def test_times_and_costs_of_a_result_have_intervals(aimed):
    table = settings_table(aimed)
    assert column(table, "Rate (results/h)")[0] == ("10.0", "[9.80, 10.2]")
    assert detail(table, 0, "Time to target") == "360 s, [352, 368]"
    assert detail(table, 0, "Cost of a result") == "0.100 USD, [0.098, 0.102]"
    assert table.data[0]["time_to_target.value"] == 360.0


def test_a_setting_that_missed_its_target_comes_last_with_the_reason(aimed):
    table = settings_table(aimed)
    assert detail(table, -1, "Time to target") == f"not measured: {MISSED}"
    assert detail(table, -1, "Verdict") == f"not measured: {MISSED}"
    assert column(table, "Accuracy")[-1][0] == "0.954", "the quality that it did reach is shown"


def test_the_runs_rates_have_the_sweeps_unit(aimed):
    assert runs_table(aimed).rows[0][4].text.endswith(" results/h")


def test_figures_show_the_unit_and_measured_settings_without_a_rate(aimed):
    heat, lines = heatmap_figure(aimed), throughput_figure(aimed)
    assert "10.0 results/h" in heat.alt
    assert [row["short"] for row in heat.rows if row["setting"] == aimed.settings[1].setting] == ["no rate"]
    assert "rate (results/h)" in str(lines.light)


def test_the_report_contains_the_time_and_the_miss(aimed, sweep):
    text = render_markdown(build_content(aimed, sweep))
    assert "Time to target" in text
    assert "not reached within 3000 samples" in text


def test_latencies_and_operations_are_shown_if_they_were_measured(findings):
    more = {"query_seconds_p50": summary(0.002, "s"), "flops_per_second": summary(2.5e12, "FLOP/s")}
    settings = tuple(
        setting.model_copy(update={"metrics": {**setting.metrics, **more}}) for setting in findings.settings
    )
    table = settings_table(findings.model_copy(update={"settings": settings}))
    assert detail(table, 0, "Median latency").startswith("2.00 ms")
    assert detail(table, 0, "FLOP/s").startswith("2.50 TFLOP/s")


def test_a_served_setting_expands_to_its_latencies_at_full_and_half_load(findings):
    more = {
        "query_seconds_p99": summary(0.04, "s"),
        "half_load_query_seconds_p99": summary(0.004, "s"),
        "answered_together": summary(2.5, "queries"),
    }
    settings = tuple(
        setting.model_copy(update={"metrics": {**setting.metrics, **more}}) for setting in findings.settings
    )
    table = settings_table(findings.model_copy(update={"settings": settings}))
    assert detail(table, 0, "p99 latency").startswith("40.0 ms")
    assert detail(table, 0, "p99 latency at half load").startswith("4.00 ms")
    assert detail(table, 0, "Queries in a batch").startswith("2.50 queries")
    assert number(12_300.0, "queries/s") == "12.3k queries/s"
    assert number(12_300_000.0, "row rounds/s") == "12.3M row rounds/s"
