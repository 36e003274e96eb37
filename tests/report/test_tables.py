"""Tables: every number with its interval, every missing one with its reason, every failure a row."""

from accelsweep.config.prices import PriceUsed
from accelsweep.features.claims import report as report_
from accelsweep.features.claims.model import ClaimFinding, Claims, ClaimVerdict
from accelsweep.features.ladder import report
from accelsweep.features.ladder.model import Ladder
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.run_record import Doubt, Outcome
from accelsweep.report.content import build_content
from accelsweep.report.report_tables import build_tables, doubts_table, environment_table, failures_table, runs_table
from accelsweep.report.setting_table import absent_metrics, cells_table, cost_words


def words(row):
    return [(entry.text, entry.detail) for entry in row]


def test_a_cell_has_rate_and_speed_up_with_intervals_and_its_verdict(findings):
    table = cells_table(findings)
    assert [column.title for column in table.columns] == [
        "Setting",
        "Rate",
        "Speed-up",
        "Verdict",
        "Accuracy",
        "Doubts",
    ]
    assert words(table.rows[0]) == [
        ("cpu x2 | 32-true | batch 128", ""),
        ("18.0k samples/s", "[17.8k, 18.3k]"),
        ("2.25x", "[2.22, 2.29]"),
        ("faster", ""),
        ("0.954", "[0.948, 0.960] undecided"),
        ("other work kept the processor busy", ""),
    ]


def test_cells_stand_fastest_first_and_only_measured_ones(findings):
    rates = [row[1].order for row in cells_table(findings).rows]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 7


def opened(table, row=0):
    return {line.name: line.text for line in table.more[row]}


def test_a_row_opens_to_readings_bottleneck_reasons_and_what_to_type(findings):
    told = {"again": "accelsweep run batch_size=128", "trainer": "Trainer(devices=2)", "memory_share": 0.012}
    cells = [cell.model_copy(update=told) for cell in findings.cells]
    table = cells_table(findings.model_copy(update={"cells": tuple(cells)}))
    assert opened(table) == {
        "Memory": "81.6 MiB, 1 % of the machine",
        "Bottleneck": "compute-bound: forward took most",
        "Verdict": "faster: the interval lies beyond the threshold",
        "Doubt": "other work kept the processor busy (busy_cpu): other processes used 35 % of the CPU. "
        "Stop other work and measure again.",
        "Repeats": "3 of 3 measured; the setting is 2128a0000000 in files",
        "Measure it again": "accelsweep run batch_size=128",
        "Trainer": "Trainer(devices=2)",
    }
    assert {line.name for line in table.more[0] if line.code} == {"Measure it again", "Trainer"}
    assert "Memory: process group." in table.caption, "what is the same in each row stands once"


def test_a_scope_that_differs_between_rows_stands_in_each(findings):
    memory = findings.cells[0].metrics["host_pss_bytes"].model_copy(update={"scope": "rank 0"})
    other = findings.cells[0].model_copy(update={"metrics": {"host_pss_bytes": memory}})
    table = cells_table(findings.model_copy(update={"cells": (other, *findings.cells[1:])}))
    assert "Memory" not in table.caption.partition("medians.")[2]
    assert {opened(table, row)["Memory"].partition(", ")[2] for row in range(7)} == {"rank 0", "process group"}


def test_a_rate_without_an_interval_says_so_once_with_the_reason(findings):
    lone = Estimate(value=8000.0, low=None, high=None, unit="1/s", confidence=0.95, count=1, reason="one repeat")
    cell = findings.cells[0].model_copy(update={"rate": lone})
    table = cells_table(findings.model_copy(update={"cells": (cell,)}))
    assert words(table.rows[0])[1] == ("8,000 samples/s", "no interval")
    assert opened(table)["No interval"] == "one repeat"


def test_a_column_that_nobody_can_fill_is_left_out_and_told_in_one_line(findings):
    assert absent_metrics(findings) == ["Energy: not measured: RAPL is not readable here."]
    noted = findings.model_copy(update={"costs_note": "no prices were given"})
    assert absent_metrics(noted)[-1] == "Cost: no prices were given."


def test_costs_are_told_where_there_are_prices(findings):
    cost = Estimate(value=0.41, low=0.40, high=0.42, unit="USD", confidence=0.95, count=3)
    cells = (findings.cells[0].model_copy(update={"costs": {"usd_per_million_samples": cost}}), *findings.cells[1:])
    table = cells_table(findings.model_copy(update={"cells": cells}))
    assert opened(table, -2)["Cost of 1M samples"] == "0.41 USD, [0.40, 0.42]"
    assert "Cost of 1M samples" not in opened(table, -1)


def test_energy_says_that_it_is_per_sample_what_it_covers_and_how_it_was_averaged(metered, sweep):
    table = cells_table(metered)
    assert opened(table)["Energy"] == "120 mJ/sample, [110, 130]"
    assert "Energy: CPU packages of all nodes." in table.caption
    assert (table.data[0]["joules_per_sample.unit"], table.data[0]["energy_joules.unit"]) == ("J/sample", "J")
    assert "energy and costs are geometric means over the repeats" in table.caption
    fact = next(tile for tile in build_content(metered, sweep).tiles if tile.name == "Energy")
    assert fact.value == "120 mJ/sample"


def test_the_prices_stand_below_the_cells_with_their_dates_and_sources(findings):
    listed = PriceUsed(name="Tesla K80", value=0.967, unit="USD per hour", date="2018", source="DAWNBench")
    own = PriceUsed(name="cpu", value=1, unit="USD per hour", date=None, source=None)
    gap = "Cost per epoch: not given, because nobody counted."
    assert cost_words(findings.model_copy(update={"prices": (listed, own), "cost_gaps": (gap,)})) == [
        "Priced with Tesla K80 at 0.967 USD per hour (DAWNBench, 2018).",
        "Priced with cpu at 1 USD per hour (your own figure, without a source).",
        gap,
    ]


def test_the_csv_of_cells_holds_the_unrounded_numbers_of_every_cell(findings):
    data = cells_table(findings).data
    assert len(data) == 8
    assert data[6]["speedup.value"] == 2.252
    assert data[6]["axis.batch_size"] == 128
    assert data[6]["energy_joules.reason"] == "RAPL is not readable here"
    assert data[7]["rate.value"] is None


def test_every_failure_is_a_row_with_its_reason(findings):
    assert [words(row) for row in failures_table(findings).rows] == [
        [
            ("cpu x2 | bf16-mixed | batch 128", "2128b0000000"),
            ("out of memory", ""),
            ("3 of 3", ""),
            ("CUDA out of memory: tried to allocate 2.00 GiB", ""),
        ],
        [("devices=2, precision=16-mixed", ""), ("excluded", ""), ("not planned", ""), ("not of interest", "")],
    ]


def test_a_cell_that_failed_in_two_ways_has_two_rows_with_the_reasons_of_each(findings):
    cell = findings.cells[0]
    first = cell.runs[0].model_copy(update={"outcome": Outcome.crashed, "reason": "RuntimeError: boom"})
    second = cell.runs[1].model_copy(update={"outcome": Outcome.timed_out, "reason": "after 600 s"})
    outcomes = {Outcome.measured: 1, Outcome.crashed: 1, Outcome.timed_out: 1}
    mixed = cell.model_copy(update={"runs": (first, second, cell.runs[2]), "outcomes": outcomes})
    rows = failures_table(findings.model_copy(update={"cells": (mixed,), "excluded": ()})).rows
    assert [(row[1].text, row[2].text, row[3].text) for row in rows] == [
        ("crashed", "1 of 3", "RuntimeError: boom"),
        ("timed out", "1 of 3", "after 600 s"),
    ]


def test_a_doubt_names_the_cells_that_it_weakens(findings):
    assert [words(row)[2][0] for row in doubts_table(findings).rows] == [
        "the whole sweep",
        "cpu x2 | 32-true | batch 32; cpu x2 | 32-true | batch 128",
    ]


def test_runs_show_where_their_records_are_and_the_csv_has_all_of_them(findings):
    table = runs_table(findings)
    assert (len(table.rows), len(table.data)) == (24, 24)
    assert table.caption == "Each run's record is sweeps/example/runs/RUN/record.json."


def test_the_environment_lists_machines_and_software(findings):
    assert [words(row)[0][0] for row in environment_table(findings).rows] == ["example-host"] * 2 + ["software"] * 4


def test_an_empty_table_has_a_sentence_instead(findings):
    bare = findings.model_copy(
        update={"cells": (), "excluded": (), "doubts": (), "hardware": (), "environment": {}, "outcomes": {}}
    )
    for table in build_tables(bare):
        assert table.rows == ()
        assert table.empty.endswith(".")


def test_no_verdict_is_told_by_colour_alone(findings):
    for row in cells_table(findings).rows:
        assert row[3].text in set(Verdict)


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
        "cell": "a",
        "against": "b",
        "labels": ("batch 64", "batch 8"),
    }
    return ClaimFinding(**(stated | changes))


def tables_by_name(findings):
    return {table.name: table for table in build_tables(findings)}


def test_claims_have_a_table_where_the_experiment_states_some(findings):
    assert "claims" not in tables_by_name(findings)
    absent = {"measured": None, "labels": (), "verdict": ClaimVerdict.not_testable, "reason": "there is no GPU"}
    claims = (claim_finding(), claim_finding(**absent))
    table = tables_by_name(findings.model_copy(update={"sections": {"claims": Claims(figures=claims)}}))["claims"]
    assert words(table.rows[0]) == [
        ("batches of 8 take 3x the time of batches of 64", "batch_size"),
        ("3x", ""),
        ("1.42x [1.40, 1.44]", "batch 64 against batch 8"),
        ("less than claimed", ""),
        ("none", ""),
    ]
    assert words(table.rows[1])[2:4] == [("not measured", ""), ("not testable here", "there is no GPU")]
    assert (table.data[0]["measured.low"], table.data[1]["measured.low"]) == (1.4, None)


def test_why_a_claim_may_come_out_differently_stands_once_for_all_its_figures(findings):
    claims = (claim_finding(figure="rate"), claim_finding(figure="memory"), claim_finding(analogue="threads"))
    other = claim_finding(id="vgg16", differs=())
    table = tables_by_name(findings.model_copy(update={"sections": {"claims": Claims(figures=(*claims, other))}}))[
        "reasons"
    ]
    assert [words(row) for row in table.rows] == [
        [("batch_size", ""), ("a forum", ""), ("that was another network", "")],
        [("vgg16", ""), ("a forum", ""), ("no reason is known", "")],
    ]


def test_an_analogue_has_a_row_of_its_own_that_says_so_in_its_verdict(findings):
    analogue = claim_finding(analogue="threads in place of GPUs", figure="rate", verdict=ClaimVerdict.agrees)
    (row,) = tables_by_name(findings.model_copy(update={"sections": {"claims": Claims(figures=(analogue,))}}))[
        "claims"
    ].rows
    assert words(row)[0] == ("batch_size, analogue: rate", "threads in place of GPUs")
    assert words(row)[3] == ("analogue: agrees", "")


def test_what_others_published_stands_beside_ours_in_a_table_of_its_own(findings):
    assert "published" not in tables_by_name(
        findings.model_copy(update={"sections": {"claims": Claims(figures=(claim_finding(),))}})
    )
    ours = Estimate(value=0.004, low=0.0039, high=0.0041, unit="s", confidence=0.95, count=3)
    net = {"claimed": "0.024 to 0.037 s", "against": None, "measured": ours, "labels": ("cuda x1",)}
    caffe = claim_finding(figure="FCN-5", published={"Caffe": 0.037, "TF": 0.024}, **net)
    torch = claim_finding(figure="LSTM-32", published={"Torch": 0.096}, **{**net, "measured": None, "reason": "no GPU"})
    table = tables_by_name(
        findings.model_copy(update={"sections": {"claims": Claims(figures=(caffe, torch, claim_finding()))}})
    )["published"]
    assert [column.title for column in table.columns] == ["Figure", "Caffe", "TF", "Torch", "Here"]
    assert words(table.rows[0])[1:] == [("0.037", ""), ("0.024", ""), ("-", ""), ("4.0 ms [3.9, 4.1]", "cuda x1")]
    assert words(table.rows[1])[4] == ("not measured", "no GPU")
    assert "a forum" in table.caption


def test_a_ladder_has_a_row_for_each_step_measured_or_not(findings, rungs):
    assert "ladder" not in tables_by_name(findings)
    table = tables_by_name(findings.model_copy(update={"sections": {"ladder": Ladder(rungs=rungs)}}))["ladder"]
    naive, batch, layout = (words(row) for row in table.rows)
    assert [naive[0], naive[2], naive[3]] == [("naive", "example-host"), ("-", ""), ("first rung", "")]
    assert batch[0] == ("larger batch", "example-host")
    assert batch[2] == ("2.0x [1.8, 2.2]", "over naive")
    assert batch[4] == ("2.0x [1.8, 2.2]", "")
    assert layout[1:4] == [("not measured", ""), ("not measured", ""), ("not measured", "no such key")]
    assert (table.data[1]["gain.low"], table.data[2]["gain.low"]) == (1.8, None)


def test_a_claim_and_a_step_are_told_in_one_line(rungs):
    assert report_.in_one_line(claim_finding()) == (
        "batch_size: claimed 3x, measured 1.42x [1.40, 1.44], less than claimed"
    )
    absent = claim_finding(measured=None, verdict=ClaimVerdict.not_testable, reason="no GPU", figure="rate")
    assert report_.in_one_line(absent) == "batch_size, rate: claimed 3x, not testable here (no GPU)"
    never = Estimate(value=0.0, low=0.0, high=0.616, unit="of the runs", confidence=0.95, count=5)
    shared = claim_finding(measured=never, metric="outcome.diverged", claimed="1", against=None)
    assert report_.in_one_line(shared) == (
        "batch_size: claimed 1, measured 0.0 of the runs [0.0, 0.7], less than claimed"
    )
    naive, batch, layout = map(report.in_one_line, rungs)
    assert naive == "naive: 100 samples/s [90, 110]"
    assert batch == "larger batch: 2.0x [1.8, 2.2] over naive (faster), 2.0x [1.8, 2.2] in all"
    assert layout == "channels last: not measured (no such key)"
    refused = {"gain": None, "verdict": Verdict.refused, "total": None, "total_verdict": Verdict.refused}
    other = rungs[1].model_copy(update={**refused, "reason": "torch differs"})
    assert report.in_one_line(other) == "larger batch: 200 samples/s [180, 220], refused (torch differs)"
    late = rungs[1].model_copy(update={"total": None, "total_verdict": Verdict.refused})
    assert report.in_one_line(late) == "larger batch: 2.0x [1.8, 2.2] over naive (faster), refused in all"


def test_the_doubts_of_its_runs_travel_with_a_claim(findings):
    busy = Doubt(code="busy_cpu", message="others used the CPU", remedy="stop them")
    claim = claim_finding(doubts=(busy, busy.model_copy(update={"message": "and again"})))
    (row,) = tables_by_name(findings.model_copy(update={"sections": {"claims": Claims(figures=(claim,))}}))[
        "claims"
    ].rows
    assert (row[4].text, row[4].tone) == ("busy_cpu", "doubt")
    assert report_.in_one_line(claim).endswith("less than claimed; doubts: busy_cpu")
