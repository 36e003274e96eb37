"""Tables: every number with its interval, every missing one with its reason, every failure a row."""

import re
from dataclasses import replace

import pytest

from accelsweep.config.prices import PriceUsed
from accelsweep.records.estimates import Estimate, Summary, Verdict
from accelsweep.report.content import build_content
from accelsweep.report.report_tables import build_tables, doubts_table, environment_table, failures_table, runs_table
from accelsweep.report.setting_table import absent_metrics, cost_notes, settings_table
from accelsweep.results import Outcome


def words(row):
    return [(entry.text, entry.detail) for entry in row]


def test_a_setting_has_rate_and_speed_up_with_intervals_and_its_verdict(findings):
    table = settings_table(findings)
    assert [column.title for column in table.columns] == [
        "Setting",
        "Rate (samples/s)",
        "Speed-up",
        "Verdict",
        "Accuracy",
        "Memory (MiB)",
        "Doubts",
    ]
    assert words(table.rows[0]) == [
        ("batch 128, 32-bit, 2 processes", ""),
        ("18,000", "[17,800, 18,300]"),
        ("2.25x", "[2.22, 2.29]"),
        ("faster", ""),
        ("0.954", "[0.948, 0.960] undecided"),
        ("81.6", ""),
        ("other work kept the processor busy", ""),
    ]


def test_all_values_of_a_column_have_as_many_significant_digits(findings):
    wide = findings.settings[1].speedup.model_copy(
        update={"ratio": Estimate(value=0.6012, low=0.31, high=0.94, unit="x", confidence=0.99, count=3)}
    )
    settings = (findings.settings[0], findings.settings[1].model_copy(update={"speedup": wide}), *findings.settings[2:])
    table = settings_table(findings.model_copy(update={"settings": settings}))
    ratios = [re.sub(r"[x.]", "", row[2].text).lstrip("0") for row in table.rows if row[3].text != "baseline"]
    assert {len(digits) for digits in ratios} == {3}
    assert ("0.601x", "[0.310, 0.940]") in [(row[2].text, row[2].detail) for row in table.rows]


def test_memory_that_is_a_peak_is_called_one(findings):
    assert "Memory (MiB)" in [column.title for column in settings_table(findings).columns]
    peaks = [
        setting.model_copy(update={"metrics": {"peak_memory_reserved_bytes": setting.metrics["host_pss_bytes"]}})
        for setting in findings.settings
        if setting.measured
    ]
    table = settings_table(findings.model_copy(update={"settings": tuple(peaks)}))
    assert "Peak memory (MiB)" in [column.title for column in table.columns]


def test_measured_settings_are_listed_fastest_first(findings):
    rates = [row[1].order for row in settings_table(findings).rows]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 7


def details(table, row=0):
    return {line.name: line.text for line in table.details[row]}


def test_a_row_expands_to_readings_bottleneck_reasons_and_commands(findings):
    changes = {"again": "accelsweep run batch_size=128", "trainer": "Trainer(devices=2)", "memory_share": 0.012}
    settings = [setting.model_copy(update=changes) for setting in findings.settings]
    table = settings_table(findings.model_copy(update={"settings": tuple(settings)}))
    assert details(table) == {
        "Memory": "81.6 MiB, 1 % of the machine",
        "Batch": "256 samples per optimiser step, 128 on each of 2 devices",
        "Bottleneck": "compute-bound: forward took most",
        "Verdict": "faster: the interval lies beyond the threshold",
        "Doubt": "other work kept the processor busy (busy_cpu): other processes used 35 % of the CPU. "
        "Stop other work and measure again.",
        "Repeats": "3 of 3 measured; the setting's ID in files is 2128a0000000",
        "Measure it again": "accelsweep run batch_size=128",
        "Train like this": "Trainer(devices=2)",
    }
    assert {line.name for line in table.details[0] if line.code} == {"Measure it again", "Train like this"}
    assert "Memory: process group." in table.caption, "a scope that all rows share is in the caption"


def test_a_scope_that_differs_between_rows_is_in_each(findings):
    memory = replace(findings.settings[0].metrics["host_pss_bytes"], scope="rank 0")
    other = findings.settings[0].model_copy(update={"metrics": {"host_pss_bytes": memory}})
    table = settings_table(findings.model_copy(update={"settings": (other, *findings.settings[1:])}))
    assert "Memory" not in table.caption.partition("medians.")[2]
    assert {details(table, row)["Memory"].partition(", ")[2] for row in range(7)} == {"rank 0", "process group"}


def test_a_rate_without_an_interval_says_so_once_with_the_reason(findings):
    lone = Estimate(value=8000.0, low=None, high=None, unit="1/s", confidence=0.95, count=1, reason="one repeat")
    setting = findings.settings[0].model_copy(update={"rate": lone})
    table = settings_table(findings.model_copy(update={"settings": (setting,)}))
    assert words(table.rows[0])[1] == ("8,000", "no interval")
    assert details(table)["No interval"] == "one repeat"


def test_a_reading_that_no_setting_has_is_one_line_with_the_reason(findings):
    assert absent_metrics(findings) == ["Energy: not measured: RAPL is not readable here."]
    noted = findings.model_copy(update={"costs_note": "no prices were given"})
    assert absent_metrics(noted)[-1] == "Cost: no prices were given."


def test_costs_are_shown_if_there_are_prices(findings):
    cost = Estimate(value=0.41, low=0.40, high=0.42, unit="USD", confidence=0.95, count=3)
    settings = (
        findings.settings[0].model_copy(update={"costs": {"usd_per_million_samples": cost}}),
        *findings.settings[1:],
    )
    table = settings_table(findings.model_copy(update={"settings": settings}))
    assert details(table, -2)["Cost of 1M samples"] == "0.41 USD, [0.40, 0.42]"
    assert "Cost of 1M samples" not in details(table, -1)


def test_energy_has_its_unit_its_scope_and_its_kind_of_mean(metered, sweep):
    table = settings_table(metered)
    assert details(table)["Energy"] == "120 mJ/sample, [110, 130]"
    assert "Energy: CPU packages of all nodes." in table.caption
    assert (table.data[0]["joules_per_sample.unit"], table.data[0]["energy_joules.unit"]) == ("J/sample", "J")
    assert "energy and costs are geometric means over the repeats" in table.caption
    fact = next(tile for tile in build_content(metered, sweep).tiles if tile.name == "Energy")
    assert fact.value == "120 mJ/sample"


@pytest.mark.parametrize(
    ("reason", "hint"),
    [
        ("not requested: set quality=METRIC, or quality=PATTERN for what the script prints", "set quality=METRIC"),
        (
            "the validation loop does not log 'f1' (it logs: acc): set measure.quality_metric",
            "set measure.quality_metric",
        ),
        ("not requested: measure.quality_samples is null", "measure.quality_samples is null"),
        ("the data or the module has no validation loop", ""),
    ],
)
def test_a_quality_that_was_not_measured_says_which_key_measures_it(findings, sweep, reason, hint):
    absent = Summary(median=None, minimum=None, maximum=None, count=0, unit="1", reason=reason)
    settings = tuple(
        setting.model_copy(update={"quality": None, "metrics": setting.metrics | {"quality": absent}})
        for setting in findings.settings
    )
    content = build_content(findings.model_copy(update={"settings": settings}), sweep)
    assert next(tile for tile in content.tiles if tile.name == "Accuracy").detail == hint


def test_the_prices_behind_costs_have_their_dates_and_sources(findings):
    listed = PriceUsed(name="Tesla K80", value=0.967, unit="USD per hour", date="2018", source="DAWNBench")
    own = PriceUsed(name="cpu", value=1, unit="USD per hour", date=None, source=None)
    gap = "Cost per epoch: not available, because nobody counted."
    assert cost_notes(findings.model_copy(update={"prices": (listed, own), "cost_gaps": (gap,)})) == [
        "Priced with Tesla K80 at 0.967 USD per hour (DAWNBench, 2018).",
        "Priced with cpu at 1 USD per hour (your own figure, without a source).",
        gap,
    ]


def test_the_csv_has_the_unrounded_numbers_of_every_setting(findings):
    data = settings_table(findings).data
    assert len(data) == 8
    assert data[6]["speedup.value"] == 2.252
    assert data[6]["axis.batch_size"] == 128
    assert data[6]["energy_joules.reason"] == "RAPL is not readable here"
    assert data[7]["rate.value"] is None


def test_every_failure_is_a_row_with_its_reason(findings):
    assert [words(row) for row in failures_table(findings).rows] == [
        [
            ("batch 128, bf16-mixed, 2 processes", "2128b0000000"),
            ("out of memory", ""),
            ("3 of 3", ""),
            ("CUDA out of memory: tried to allocate 2.00 GiB", ""),
        ],
        [("devices=2, precision=16-mixed", ""), ("excluded", ""), ("not planned", ""), ("not of interest", "")],
    ]


def test_settings_that_were_not_measured_for_a_common_reason_are_one_sentence(findings):
    reason = "the site 'local' has no CUDA devices"
    absent = [
        findings.settings[7].model_copy(
            update={"outcomes": {Outcome.unsupported: 1}, "runs": (), "reasons": (reason,), "label": f"width {width}"}
        )
        for width in range(8)
    ]
    several = findings.model_copy(update={"settings": (*findings.settings[:7], *absent), "excluded": ()})
    table = failures_table(several)
    assert table.summary == (f"8 settings unsupported: {reason}.",)
    assert (table.folded, len(table.rows)) == ("Show the 8 settings", 8)
    assert (failures_table(findings).summary, failures_table(findings).folded) == ((), ""), "each has its own reason"


def test_a_setting_that_failed_in_two_ways_has_two_rows_with_their_reasons(findings):
    setting = findings.settings[0]
    first = setting.runs[0].model_copy(update={"outcome": Outcome.crashed, "reason": "RuntimeError: boom"})
    second = setting.runs[1].model_copy(update={"outcome": Outcome.timed_out, "reason": "after 600 s"})
    outcomes = {Outcome.measured: 1, Outcome.crashed: 1, Outcome.timed_out: 1}
    mixed = setting.model_copy(update={"runs": (first, second, setting.runs[2]), "outcomes": outcomes})
    rows = failures_table(findings.model_copy(update={"settings": (mixed,), "excluded": ()})).rows
    assert [(row[1].text, row[2].text, row[3].text) for row in rows] == [
        ("crashed", "1 of 3", "RuntimeError: boom"),
        ("timed out", "1 of 3", "after 600 s"),
    ]


def test_a_doubt_names_the_settings_that_it_concerns(findings):
    assert [words(row)[2][0] for row in doubts_table(findings).rows] == [
        "the whole sweep",
        "batch 32, 32-bit, 2 processes; batch 128, 32-bit, 2 processes",
    ]


def test_all_runs_are_listed_and_the_caption_says_where_their_records_are(findings):
    table = runs_table(findings)
    assert (len(table.rows), len(table.data)) == (24, 24)
    assert table.caption == "Each run's record is sweeps/example/runs/RUN/record.json."


def test_the_environment_lists_machines_and_software(findings):
    assert [words(row)[0][0] for row in environment_table(findings).rows] == ["example-host"] * 2 + ["software"] * 4


def test_an_empty_table_has_a_sentence_instead(findings):
    bare = findings.model_copy(
        update={"settings": (), "excluded": (), "doubts": (), "hardware": (), "environment": {}, "outcomes": {}}
    )
    for table in build_tables(bare):
        assert table.rows == ()
        assert table.empty.endswith(".")


def test_verdicts_are_text_not_only_colour(findings):
    for row in settings_table(findings).rows:
        assert row[3].text in set(Verdict)
