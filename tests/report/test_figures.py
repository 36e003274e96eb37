"""Figures are drawn if the data allow, otherwise skipped with a reason; failed settings stay visible."""

import io
import xml.etree.ElementTree as ElementTree
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vl_convert
from example_sweep import build_example_sweep
from mutations import odd_integers
from PIL import Image

from accelsweep.analysis.analyse_sweep import analyse_folder
from accelsweep.files import sha256_file
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import BatchCurve
from accelsweep.records.run_record import Record
from accelsweep.report.captions import CAPTIONS
from accelsweep.report.content import build_content, build_figures
from accelsweep.report.figures.axes import ratio_domain, ratio_ticks, round_ticks
from accelsweep.report.figures.drift import drift_figure
from accelsweep.report.figures.figure import (
    DARK,
    LIGHT,
    MAX_ROWS,
    MAX_SERIES,
    VERDICT_MARKS,
    Figure,
    Palette,
    Skipped,
    contrast,
)
from accelsweep.report.figures.learning import learning_figure
from accelsweep.report.figures.memory import memory_figure
from accelsweep.report.figures.quality import quality_figure
from accelsweep.report.figures.rate import MAX_LINES, heatmap_figure, throughput_figure
from accelsweep.report.figures.scaling import efficiency_figure, scaling_figure
from accelsweep.report.figures.series import MAX_POINTS, meaning, series_figure
from accelsweep.report.figures.speedup import FIRST_SCREEN_ROWS, speedup_figure
from accelsweep.report.figures.steps import MAX_BANDS, MAX_RUNS, selected_runs, steps_figure
from accelsweep.report.figures.tradeoff import PLOT_WIDTHS, tradeoff_figures
from accelsweep.report.html_page import vega_lite_version
from accelsweep.report.report_files import render_files
from accelsweep.results import LearningCurve, LearningPoint, Outcome
from accelsweep.run_config import Run

EXAMPLES = Path(__file__).resolve().parents[2] / "reports" / "examples"
NAMES = {"breakdown", "speedup", "heatmap", "throughput", "scaling", "efficiency", "steps", "quality", "pareto-memory"}
NAMES |= {"memory", "drift"}


def svg_of(figure: Figure, palette: Palette = LIGHT) -> ElementTree.Element:
    text = vl_convert.vegalite_to_svg(figure.static_specification(palette), vega_lite_version())
    return ElementTree.fromstring(text)


def texts(svg: ElementTree.Element) -> set[str]:
    return {element.text for element in svg.iter() if element.text}


def test_every_figure_is_drawn_or_says_why_not_and_has_a_caption(findings, sweep):
    figures = build_figures(findings, sweep)
    assert [figure.name for figure in figures] == list(CAPTIONS)
    assert {figure.name for figure in figures if isinstance(figure, Figure)} == NAMES
    reasons = {figure.name: figure.reason for figure in figures if isinstance(figure, Skipped)}
    assert reasons["pareto-cost"] == "fewer than two settings have both a rate and cost"


@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_figure_becomes_a_picture_in_both_palettes(name, findings, sweep):
    figure = next(figure for figure in build_figures(findings, sweep) if figure.name == name)
    for palette in (LIGHT, DARK):
        figure.draw(palette).to_dict(validate=True)
        marks = [group for group in svg_of(figure, palette).iter() if group.get("aria-roledescription")]
        assert len(marks) > 3
    assert set(figure.columns) <= set(figure.rows[0])


def test_the_forest_shows_each_verdict_by_shape_as_well_as_by_colour(findings):
    figure = speedup_figure(findings)
    assert [row["verdict"] for row in figure.rows if row["kind"] == "setting"] == [
        "faster",
        "faster",
        "faster",
        "undecided",
        "same",
        "baseline",
        "slower",
    ]
    assert {"2.25x [2.22, 2.29]", "1.00x [0.99, 1.02]"} <= {row["words"] for row in figure.rows}
    decided = (Verdict.faster, Verdict.slower, Verdict.same, Verdict.undecided, Verdict.baseline)
    assert len({VERDICT_MARKS[verdict][0] for verdict in decided}) == len(decided)


def test_the_baseline_is_in_the_forest_even_without_a_ratio(findings):
    settings = (findings.settings[0].model_copy(update={"speedup": None}), *findings.settings[1:])
    row = next(
        r for r in speedup_figure(findings.model_copy(update={"settings": settings})).rows if r["verdict"] == "baseline"
    )
    assert (row["ratio"], row["low"], row["words"]) == (1.0, None, "1x by definition")


def test_the_forest_of_many_settings_shows_the_fastest_and_the_baseline(findings):
    settings = (*findings.settings[:1], *findings.settings[2:3] * (MAX_ROWS + 20))
    figure = speedup_figure(findings.model_copy(update={"settings": settings}))
    rows = [row for row in figure.rows if row["kind"] == "setting"]
    assert figure.note == f"The {MAX_ROWS + 1} fastest of {MAX_ROWS + 21} settings; the CSV contains all."
    assert sum(row["shown"] for row in rows) == MAX_ROWS + 1
    assert sum(row["first"] for row in rows) == FIRST_SCREEN_ROWS
    assert [row["first"] for row in rows if row["verdict"] == "baseline"] == [True]


def test_the_forest_shows_every_repeat_and_the_settings_without_a_rate_as_one_line(findings):
    figure = speedup_figure(findings)
    dots = [row for row in figure.rows if row["kind"] == "repeat"]
    measured = [point for setting in findings.settings for point in setting.runs if point.ratio is not None]
    assert sorted(row["run"] for row in dots) == sorted(point.run for point in measured)
    (grey,) = (row for row in figure.rows if row["kind"] == "absent")
    assert grey["label"] == "1 setting not measured"
    assert {"1 setting not measured", "no run was measured"} <= texts(svg_of(figure))


def test_an_interval_that_leaves_the_axis_ends_in_an_arrow(findings):
    wide = findings.settings[2].speedup.ratio.model_copy(update={"low": 0.001, "high": 3500.0})
    speedup = findings.settings[2].speedup.model_copy(update={"ratio": wide})
    settings = [
        setting.model_copy(update={"speedup": speedup}) if setting is findings.settings[2] else setting
        for setting in findings.settings
    ]
    figure = speedup_figure(findings.model_copy(update={"settings": tuple(settings)}))
    (row,) = (row for row in figure.rows if row["setting"] == findings.settings[2].setting and row["kind"] == "setting")
    assert (row["low"], row["high"]) == (0.001, 3500.0), "the data keep both ends"
    assert 0.2 < row["from"] == row["under"] < row["to"] == row["over"] < 6
    others = [other for other in figure.rows if other["kind"] == "setting" and other is not row]
    assert {(other["under"], other["over"]) for other in others} == {(None, None)}


def arrows_in(figure: Figure, shape: str) -> int:
    """Return how many layers of the figure draw marks of this shape."""
    layers = figure.specifications["light"]["layer"]
    return sum(layer["mark"].get("shape") == shape for layer in layers if isinstance(layer["mark"], dict))


def with_interval(findings, place, **changes):
    """Return the findings with one setting's interval as wide as two repeats may give."""
    settings = list(findings.settings)
    wide = {"low": -350.0, "high": 350.0}
    settings[place] = settings[place].model_copy(
        update={name: getattr(settings[place], name).model_copy(update=wide) for name in changes}
    )
    return findings.model_copy(update={"settings": tuple(settings)})


def domain_of(figure: Figure, channel: str) -> list[float]:
    """Return the domain of an axis that some layer states."""
    layers = (layer["encoding"].get(channel, {}) for layer in figure.specifications["light"]["layer"])
    return next(layer["scale"]["domain"] for layer in layers if "domain" in (layer.get("scale") or {}))


def test_an_interval_of_350_000_percent_ends_in_arrows_in_the_quality_figure(findings):
    figure = quality_figure(with_interval(findings, 1, quality=True))
    assert (arrows_in(figure, "triangle-left"), arrows_in(figure, "triangle-right")) == (1, 1)
    low, high = domain_of(figure, "x")
    qualities = [row["quality"] for row in figure.rows]
    assert high - low < 4 * (max(qualities) - min(qualities) or 1)
    assert figure.rows[1]["high"] == 350.0, "the data keep both ends"


def test_an_axis_of_rates_and_efficiencies_begins_at_zero_and_ends_near_its_marks(findings):
    huge = findings.settings[0].rate.model_copy(update={"low": -1e9, "high": 1e9})
    settings = (findings.settings[0].model_copy(update={"rate": huge}), *findings.settings[1:])
    figure = throughput_figure(findings.model_copy(update={"settings": settings}))
    low, high = domain_of(figure, "y")
    assert (low, high < 3 * max(row["rate"] for row in figure.rows if row["rate"])) == (0, True)
    assert (arrows_in(figure, "triangle-down"), arrows_in(figure, "triangle-up")) == (1, 1)
    points = [
        point.model_copy(update={"efficiency": point.efficiency.model_copy(update={"low": -350.0, "high": 350.0})})
        if point.efficiency
        else point
        for point in findings.scaling
    ]
    figure = efficiency_figure(findings.model_copy(update={"scaling": tuple(points)}))
    assert domain_of(figure, "y")[1] < 3
    assert arrows_in(figure, "triangle-up") == 1


def test_memory_is_drawn_with_the_limit_if_that_is_near(findings):
    used = {
        setting.setting: setting.metrics["host_pss_bytes"].median for setting in findings.settings if setting.measured
    }
    most = max(used.values())

    def limited(limit):
        settings = [
            setting.model_copy(update={"memory_share": used[setting.setting] / limit if setting.measured else None})
            for setting in findings.settings
        ]
        return memory_figure(findings.model_copy(update={"settings": tuple(settings)}))

    near, far = limited(1.5 * most), limited(50 * most)
    assert any(text.startswith("limit: ") for text in texts(svg_of(near)))
    assert not any(text.startswith("limit: ") for text in texts(svg_of(far)))
    assert far.note.endswith("is far above this axis.")
    assert memory_figure(findings).note.endswith("The device's memory is unknown.")
    ended = [row["ended"] for row in near.rows if row["outcome"] == "out_of_memory"]
    assert ended == [True], "a setting that ran out of memory is a cross at the top"


def test_drift_shows_each_repeat_of_the_baseline_by_block(findings):
    figure = drift_figure(findings)
    baseline = next(setting for setting in findings.settings if setting.setting == findings.baseline)
    assert [row["run"] for row in figure.rows] == [point.run for point in baseline.runs]
    runs = [point.model_copy(update={"rate": 90 * point.rate}) for point in baseline.runs[:1]]
    one = baseline.model_copy(update={"runs": (*runs, *baseline.runs[1:])})
    settings = tuple(one if setting is baseline else setting for setting in findings.settings)
    jumped = drift_figure(findings.model_copy(update={"settings": settings}))
    assert arrows_in(jumped, "triangle-up") == 1
    assert domain_of(jumped, "y")[1] < 2 * baseline.rate.value
    few = baseline.model_copy(update={"runs": baseline.runs[:2]})
    settings = tuple(few if setting is baseline else setting for setting in findings.settings)
    skipped = drift_figure(findings.model_copy(update={"settings": settings}))
    assert skipped == Skipped("drift", "the baseline has fewer than 3 measured runs")


@pytest.mark.parametrize("name", ["quickstart", "ladder"])
def test_no_picture_of_the_examples_has_a_blank_band(name):
    """80 blank rows of pixels would mean a missing mark or label, or too wide an axis: one that begins at 0 has 75."""
    for file in sorted((EXAMPLES / name / "reports" / name).glob("*.svg")):
        picture = Image.open(io.BytesIO(vl_convert.svg_to_png(file.read_text("utf-8")))).convert("L")
        lines = [picture.crop((0, row, picture.width, row + 1)).getextrema() for row in range(picture.height)]
        blank = "".join(" " if low == high else "#" for low, high in lines).strip()
        assert " " * 80 not in blank, file.name


def test_without_a_comparison_there_is_no_forest(findings):
    figure = speedup_figure(findings.model_copy(update={"settings": findings.settings[:1]}))
    assert figure == Skipped("speedup", "no setting could be compared with the baseline")


def test_the_axis_of_ratios_holds_every_interval_and_has_round_ticks():
    domain = ratio_domain([{"low": 0.6, "ratio": 0.61, "high": None}, {"low": 2.0, "ratio": 2.1, "high": 2.2}], 1.02)
    assert domain[0] < 0.6
    assert domain[1] > 2.2
    assert ratio_ticks(domain) == [0.67, 0.8, 1, 1.25, 1.5, 2]
    assert 1 in ratio_ticks((0.97, 1.03))
    assert ratio_ticks((0.9, 40.0))[-2:] == [16.0, 32.0]


def test_a_setting_without_a_rate_is_visible(findings):
    for figure in (heatmap_figure(findings), throughput_figure(findings)):
        failed = [row for row in figure.rows if row["rate"] is None]
        assert [row["outcome"] for row in failed] == ["out_of_memory"]
        assert failed[0]["words"].startswith("not measured: out of memory: CUDA out of memory")
    assert "out of memory" in texts(svg_of(heatmap_figure(findings)))
    crosses = [group.get("aria-label", "") for group in svg_of(throughput_figure(findings)).iter()]
    assert any("not measured: out of memory" in label for label in crosses)


def test_a_line_that_was_never_measured_is_neither_drawn_nor_counted(findings):
    gone = [
        setting.model_copy(update={"rate": None, "measured": 0, "outcomes": {Outcome.unsupported: 3}, "metrics": {}})
        for setting in findings.settings[4:]
    ]
    partly = findings.model_copy(update={"settings": (*findings.settings[:4], *gone)})
    drawn = {"32-bit, 1 process", "bf16-mixed, 1 process"}
    for figure in (throughput_figure(partly), heatmap_figure(partly), memory_figure(partly)):
        assert "lines" not in figure.note
        assert {row["series"] for row in figure.drawn} == drawn
    assert len(throughput_figure(partly).rows) == 8, "the data have every setting"


def test_the_knee_is_ringed(findings):
    small, large = findings.settings[0], findings.settings[2]
    curve = BatchCurve(
        series="x",
        hardware="example-host",
        settings=(small.setting, large.setting),
        knee=small.setting,
        largest_measured=128,
        smallest_out_of_memory=None,
    )
    figure = throughput_figure(findings.model_copy(update={"batch_curves": (curve,)}))
    assert [row["setting"] for row in figure.rows if row["knee"]] == [small.setting]

    host = findings.hardware[0].model_copy(update={"name": "other-host"})
    twins = [setting.model_copy(update={"hardware": "other-host"}) for setting in (small, large)]
    curves = (curve, curve.model_copy(update={"hardware": "other-host", "knee": large.setting}))
    changes = {"settings": (small, large, *twins), "hardware": (*findings.hardware, host), "batch_curves": curves}
    figure = throughput_figure(findings.model_copy(update=changes))
    assert [row["knee"] for row in figure.rows] == [True, False, False, False], "the largest batch is no knee"


def test_a_single_batch_size_has_neither_heat_map_nor_lines(findings):
    settings = tuple(setting for setting in findings.settings if setting.axes["batch_size"] == 32)
    one = findings.model_copy(update={"settings": settings})
    assert heatmap_figure(one).reason == "only one value of batch_size was planned, so there is no grid"
    assert throughput_figure(one).reason == "only one value of batch_size was planned"


def test_a_heat_map_fits_a_screen(findings):
    more = [
        setting.model_copy(update={"axes": {**setting.axes, "model.width": width}})
        for width in range(30)
        for setting in findings.settings[:4]
    ]
    figure = heatmap_figure(findings.model_copy(update={"settings": tuple(more)}))
    assert len({row["series"] for row in figure.rows}) == MAX_LINES
    assert figure.note == "The first 40 of 60 measured lines."


def test_different_machines_have_different_lines(findings):
    other = findings.hardware[0].model_copy(update={"name": "other-host"})
    twin = findings.settings[2].model_copy(update={"hardware": "other-host"})
    both = findings.model_copy(update={"settings": (*findings.settings, twin), "hardware": (*findings.hardware, other)})
    assert {row["series"] for row in throughput_figure(both).rows} >= {
        "32-bit, 1 process, example-host",
        "32-bit, 1 process, other-host",
    }


def test_more_ranks_on_one_processor_have_a_speedup_without_an_ideal_and_no_efficiency(findings):
    cut = tuple(point.model_copy(update={"efficiency": None}) for point in findings.scaling)
    drawn = scaling_figure(findings.model_copy(update={"scaling": cut}))
    assert [row["added"] for row in drawn.rows] == [False] * 4
    assert "on one machine" in drawn.note + drawn.rows[0]["line"]
    dashed = ".//*[@stroke-dasharray]"
    assert svg_of(scaling_figure(findings)).find(dashed) is not None
    assert svg_of(drawn).find(dashed) is None
    assert efficiency_figure(findings.model_copy(update={"scaling": cut})).reason.startswith("no device was added")


def test_scaling_is_drawn_against_its_ideal(findings):
    assert [row["speedup"] for row in scaling_figure(findings).rows] == [1.0, 1.8, 1.0, 1.72]
    assert "100%" in texts(svg_of(efficiency_figure(findings)))
    bare = findings.model_copy(update={"scaling": ()})
    assert (
        scaling_figure(bare).reason == efficiency_figure(bare).reason == "no setting was measured at two device counts"
    )


def test_quality_names_its_metric_and_direction(findings):
    better = findings.model_copy(update={"quality_better": "max"})
    assert "val_accuracy, higher is better" in texts(svg_of(quality_figure(better)))
    bare = [setting.model_copy(update={"quality": None}) for setting in findings.settings]
    assert quality_figure(findings.model_copy(update={"settings": bare})).reason == "no run recorded a quality"


def test_costs_are_drawn_if_there_are_prices_and_memory_if_it_was_read(findings):
    cost = Estimate(value=0.4, low=0.39, high=0.41, unit="USD", confidence=0.95, count=3)
    settings = [
        setting.model_copy(update={"costs": {"usd_per_million_samples": cost}}) for setting in findings.settings
    ]
    drawn = {figure.name: figure for figure in tradeoff_figures(findings.model_copy(update={"settings": settings}))}
    assert [row["value"] for row in drawn["pareto-cost"].rows] == [0.4] * 7
    assert isinstance(drawn["pareto-energy"], Skipped)
    roles = {row["setting"]: row["role"] for row in drawn["pareto-memory"].rows}
    assert roles[findings.settings[6].setting] == "recommended"
    assert roles[findings.settings[0].setting] == "baseline"


def test_each_mark_of_a_trade_off_carries_the_name_of_its_setting(findings):
    figure = tradeoff_figures(findings)[2]
    assert {row["label"] for row in figure.rows} <= texts(svg_of(figure))
    assert figure.note == ""
    assert LIGHT.faster in str(figure.specifications["light"]), "marks have the colours of their verdicts"


@pytest.mark.parametrize("width", [300, 600])
def test_names_that_do_not_fit_a_trade_off_are_left_out_but_never_that_of_the_recommended_setting(findings, width):
    crowd = [
        setting.model_copy(
            update={
                "setting": f"{place:012x}" if place else findings.settings[6].setting,
                "rate": setting.rate.model_copy(update={"value": 10_000.0 + 7 * place}),
            }
        )
        for place, setting in enumerate([findings.settings[6]] * 40)
    ]
    figure = tradeoff_figures(findings.model_copy(update={"settings": tuple(crowd)}))[2]
    key = next(key for key, known in PLOT_WIDTHS.items() if known == width)
    named = [row for row in figure.rows if row[key] is not None]
    assert "recommended" in {row["role"] for row in named}
    assert len(named) < 40
    unnamed = sum(row["side"] is None for row in figure.rows)
    assert figure.note == f"There is no room for {unnamed} names: point at the mark."


COLOUR_VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""What linear RGB looks like without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)."""

_TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def oklab(colour: str, vision: str) -> np.ndarray:
    """Return a colour in Oklab (Ottosson 2020), in which equal distances look about equally different."""
    channels = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(COLOUR_VISION[vision]) @ linear, 0, 1)
    return np.array(_TO_LAB) @ np.cbrt(np.array(_TO_CONES) @ seen)


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_series_have_colours_that_no_verdict_has_and_that_everybody_can_tell_apart(palette):
    assert len(palette.series) >= MAX_SERIES
    for colour in palette.series:
        assert contrast(colour, palette.page) >= 2.99, colour
        for verdict in (palette.faster, palette.slower, palette.undecided, palette.doubt):
            assert np.linalg.norm(oklab(colour, "normal") - oklab(verdict, "normal")) > 0.1, (colour, verdict)
    for vision in COLOUR_VISION:
        for one, other in combinations(palette.series, 2):
            assert np.linalg.norm(oklab(one, vision) - oklab(other, vision)) > 0.08, (vision, one, other)


def test_text_on_a_bar_or_tile_is_legible():
    for palette in (LIGHT, DARK):
        assert min(contrast(palette.text_on(colour), colour) for colour in palette.series) >= 3.9
        assert contrast(palette.on_ramp[0], palette.ramp[0]) > 7
        assert contrast(palette.on_ramp[1], palette.ramp[-1]) > 7


def test_energy_of_different_scopes_is_not_drawn_on_one_axis(metered):
    drawn = tradeoff_figures(metered)[1]
    assert {row["unit"] for row in drawn.rows} == {"J/sample"}
    assert "energy (J/sample)" in str(drawn.specifications["light"])
    *rest, last, failed = metered.settings
    boards = last.metrics["energy_joules"].model_copy(update={"scope": "GPU boards of all ranks"})
    mixed = last.model_copy(update={"metrics": {**last.metrics, "energy_joules": boards}})
    skipped = tradeoff_figures(metered.model_copy(update={"settings": (*rest, mixed, failed)}))[1]
    assert skipped == Skipped(
        "pareto-energy",
        "energy of different scopes is not comparable: CPU packages of all nodes and GPU boards of all ranks",
    )


def test_only_memory_that_is_a_peak_is_called_one(findings):
    host = tradeoff_figures(findings)[2]
    assert "peak" not in str(host.specifications["light"]) + host.alt
    assert "host memory after the window (MiB)" in str(host.specifications["light"])
    reserved = [
        setting.model_copy(update={"metrics": {"peak_memory_reserved_bytes": setting.metrics["host_pss_bytes"]}})
        for setting in findings.settings[:3]
    ]
    gpu = tradeoff_figures(findings.model_copy(update={"settings": tuple(reserved)}))[2]
    assert gpu.alt == "3 settings by rate and peak memory, reserved."


def test_a_missing_price_is_the_reason_for_skipping(findings):
    figures = tradeoff_figures(findings.model_copy(update={"costs_note": "no prices were given"}))
    assert figures[0].reason.endswith("a rate and cost (no prices were given)")


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(34.7, 81.6, [30, 40, 50, 60, 70, 80, 90]), (5.0, 5.0, [5]), (0.12, 0.31, [0.1, 0.15, 0.2, 0.25, 0.3, 0.35])],
)
def test_ticks_are_round_and_cover_the_values(low, high, ticks):
    assert round_ticks(low, high) == ticks


def test_steps_show_the_recommended_run_first_and_doubted_runs_before_the_rest(findings, sweep):
    figure = steps_figure(findings, sweep)
    assert figure.rows[0]["title"] == "batch 128, 32-bit, 2 processes (repeat 0)"
    assert len(selected_runs(findings)) == MAX_RUNS
    assert len({row["setting"] for row in figure.rows}) == MAX_BANDS
    assert figure.note.endswith(" Of 21 measured runs, 11 are drawn.")
    assert {row["rank"] for row in figure.rows} == {0, 1}


def test_an_extreme_step_becomes_an_arrow_and_does_not_stretch_the_bands(findings, sweep):
    usual = steps_figure(findings, sweep)
    path = sweep.steps(selected_runs(findings)[0][1].run)
    table = pq.read_table(path)
    seconds = table["step_seconds"].to_pylist()
    column = table.schema.get_field_index("step_seconds")
    pq.write_table(table.set_column(column, "step_seconds", pa.array([1e4 * seconds[0], *seconds[1:]])), path)
    stalled = steps_figure(findings, sweep)
    assert arrows_in(usual, "triangle-up") == 0
    assert arrows_in(stalled, "triangle-up") == 1
    top = stalled.note.partition(" to ")[2].partition(". ")[0]
    assert top.endswith(" ms"), "a band would reach to minutes otherwise"


def test_runs_of_merged_sweeps_can_be_selected_separately(findings, sweep):
    """Both sweeps have a repeat 0 of the same setting."""
    setting, (run, other, _) = findings.settings[0], findings.settings[0].runs
    points = tuple(
        point.model_copy(update={"run": f"{name}/{point.run}", "repeat": 0})
        for name, point in (("A", run), ("B", other))
    )
    one = setting.model_copy(update={"runs": points})

    class Merged:
        def steps(self, name):
            return sweep.steps(name.partition("/")[2])

        def record(self, name):
            return sweep.record(name.partition("/")[2])

    figure = steps_figure(findings.model_copy(update={"settings": (one,), "merged": ("A", "B")}), Merged())
    assert list(dict.fromkeys((row["title"], row["run"]) for row in figure.rows)) == [
        ("batch 32, 32-bit, 1 process (A, repeat 0)", points[0].run),
        ("batch 32, 32-bit, 1 process (B, repeat 0)", points[1].run),
    ]


def readings(path, seconds, **columns):
    phases = ["warmup" if second < 0 else "window" if second < 5 else None for second in seconds]
    table = {"seconds": seconds, "unix_seconds": seconds, "phase": phases, **columns}
    pq.write_table(pa.table(table), path)


def with_curves(folder, **curves):
    """Build the example sweep, add a curve to each record, and return its figure."""
    example = build_example_sweep(folder)
    for path in example.latest_records():
        Record.read(path).model_copy(update={"learning": LearningCurve(**curves)}).write(path)
    return learning_figure(analyse_folder(example), example)


def test_curves_are_drawn_in_two_bands_with_a_line_per_repeat(tmp_path):
    losses = tuple(LearningPoint(32 * step, 2.0 / step) for step in (1, 2, 4))
    figure = with_curves(tmp_path, losses=losses, validations=(LearningPoint(128, 0.9),))
    assert {row["band"] for row in figure.rows} == {"val_accuracy, 0.900 to 0.900", "training loss, 0.500 to 2.00"}
    drawn = [row for row in figure.rows if row["run"] == figure.rows[0]["run"]]
    assert [(row["curve"], row["samples"], round(row["share"], 3)) for row in drawn] == [
        *(("training loss", 32, 1.0), ("training loss", 64, 0.333), ("training loss", 128, 0.0)),
        ("val_accuracy", 128, 0.5),
    ]
    assert len({row["run"] for row in figure.rows}) > len({row["setting"] for row in figure.rows})
    for palette in (LIGHT, DARK):
        assert texts(svg_of(figure, palette)) >= {"training samples", "training loss, 0.500 to 2.00"}


def test_curves_on_the_way_to_a_target_are_drawn_over_the_time_of_training(tmp_path):
    points = tuple(LearningPoint(32 * step, 0.1 * step, 1.5 * step) for step in (1, 2))
    figure = with_curves(tmp_path, validations=points)
    assert "training time in seconds" in texts(svg_of(figure))
    assert figure.note == "The time excludes validations."


class Series:
    """Every run's series is the same file."""

    def __init__(self, path):
        self.path = path

    def series(self, _):
        return self.path

    def steps(self, _):
        return self.path.with_name("no-steps.parquet")

    def record(self, _):
        return self.path.with_name("no-record.json")


def test_readings_of_the_baseline_are_drawn_with_the_mean_of_its_devices_and_at_most_so_many_points(findings, tmp_path):
    seconds = [number / 20 - 1 for number in range(150)]
    gpus = {f"gpu{number}_power_watts": [100.0 * (number + 1)] * 150 for number in range(2)}
    readings(tmp_path / "series.parquet", seconds, **gpus, host_cpu_cores=[None, *[1.5] * 149])
    figure = series_figure(findings, Series(tmp_path / "series.parquet"))
    powers = [row["value"] for row in figure.rows if row["quantity"] == "gpu_power_watts"]
    assert set(powers) == {150.0}
    runs = {row["run"] for row in figure.rows}
    assert len(powers) == MAX_POINTS * len(runs), "150 readings were averaged"
    assert {row["band"] for row in figure.rows} == {"power, to 150 W", "cores of the machine, to 1.50"}
    for palette in (LIGHT, DARK):
        assert texts(svg_of(figure, palette)) >= {"power, to 150 W", "seconds since the window opened"}


def test_each_sampled_setting_has_a_picture_beside_the_page_to_which_its_row_links(findings, tmp_path):
    readings(tmp_path / "series.parquet", [-0.5, 0.0, 0.5, 1.0], host_cpu_cores=[None, 1.0, 1.5, 1.5])
    metric = next(iter(findings.settings[0].metrics.values()))
    first, *rest = findings.settings
    sampled = first.model_copy(update={"metrics": {"host_cpu_cores_mean": metric}})
    sampled_findings = findings.model_copy(update={"settings": (sampled, *rest)})
    content = build_content(sampled_findings, Series(tmp_path / "series.parquet"))
    (name,) = content.pictures
    assert name.startswith(f"series-{first.setting}-")
    assert f"{name}.svg" in render_files(content)
    (settings,) = [table for table in content.tables if table.name == "settings"]
    assert [line.href for lines in settings.details for line in lines if line.href] == [f"{name}.svg"]
    unreadable = build_content(sampled_findings, Series(tmp_path / "missing.parquet"))
    (settings,) = [table for table in unreadable.tables if table.name == "settings"]
    assert not [line.href for lines in settings.details for line in lines if line.href], "no link leads nowhere"


def test_the_rows_of_two_nodes_are_averaged_in_one_line(findings, tmp_path):
    seconds = [number / 4 for number in range(16)]
    memory = {"host_memory_bytes": [1e9, None] * 8, "host1_memory_bytes": [None, 1e9] * 8}
    cores = {"host_cpu_cores": [1.0, None] * 8, "host1_cpu_cores": [None, 3.0] * 8}
    readings(tmp_path / "series.parquet", seconds, **memory, **cores)
    figure = series_figure(findings, Series(tmp_path / "series.parquet"))
    assert {row["value"] for row in figure.rows if row["quantity"] == "host_cpu_cores"} == {2.0}


def test_the_power_limit_is_a_dashed_line_in_the_band_of_the_power(findings, tmp_path):
    seconds = [number / 2 - 1 for number in range(12)]
    power = {"gpu0_power_watts": [200.0] * 12, "gpu0_power_limit_watts": [250.0] * 12}
    readings(tmp_path / "series.parquet", seconds, **power)
    figure = series_figure(findings, Series(tmp_path / "series.parquet"))
    assert {(row["band"], row["share"], row["limit"]) for row in figure.rows} == {
        ("power, to 250 W", 0.8, False),
        ("power, to 250 W", 1.0, True),
    }
    assert any("stroke-dasharray" in element.attrib for element in svg_of(figure, LIGHT).iter())


def test_a_sweep_without_readings_says_so(findings, tmp_path):
    skipped = series_figure(findings, Series(tmp_path / "missing.parquet"))
    assert skipped.reason == "no series.parquet of the recommended setting or of the baseline could be read"
    (tmp_path / "damaged.parquet").write_bytes(b"no table")
    assert series_figure(findings, Series(tmp_path / "damaged.parquet")) == skipped


def test_what_the_readings_mean_is_said_in_words(findings):
    setting = findings.settings[0]
    metric = next(iter(setting.metrics.values()))

    def said(**means):
        metrics = {name: metric.model_copy(update={"median": value}) for name, value in means.items()}
        return meaning(setting.model_copy(update={"metrics": metrics, "bottleneck": None, "label": "bf16"}))

    assert said(gpu_utilisation_mean=0.62, gpu_throttled_mean=0.25) == (
        "bf16: its devices were idle 38 % of the window; they were throttled for 25 % of it."
    )
    assert said(rank_cpu_cores_mean=0.75, host_cpu_cores_mean=1.5) == (
        "bf16: each rank used 0.75 cores, without loader workers; the whole machine used 1.5."
    )
    assert said(rank_cpu_cores_mean=0.75, host_cpu_cores_mean=1.5, process_cpu_seconds=9.0) == (
        "bf16: the command used 0.75 cores; the whole machine used 1.5."
    )
    assert said(samples_per_second=3.0) == ""


def test_steps_whose_digest_differs_from_the_record_are_left_out(findings, sweep, tmp_path_factory):
    run = selected_runs(findings)[0][1].run
    example = build_example_sweep(tmp_path_factory.mktemp("records"))
    own = {"run": run, "setting": Run.parse(run).setting}
    record = Record.read(next(example.root.glob("runs/*/record.json"))).model_copy(update=own)
    for digest, drawn in (("0" * 64, False), (sha256_file(sweep.steps(run)), True), (None, True)):
        record.model_copy(update={"steps_sha256": digest}).write(sweep.record(run))
        assert (run in {row["run"] for row in steps_figure(findings, sweep).rows}) is drawn


@pytest.mark.heavy
@pytest.mark.parametrize("damage", [lambda _: b"PAR1 damaged", odd_integers], ids=["cut", "odd schema"])
def test_unreadable_steps_only_skip_their_figure(findings, sweep, damage):
    for file in sweep.root.glob("runs/*/steps.parquet"):
        file.write_bytes(damage(file.read_bytes()))
    assert steps_figure(findings, sweep).reason == "no steps.parquet of a measured run could be read"


def test_of_many_lines_only_the_fastest_or_best_scaling_are_drawn(findings):
    setting, point = findings.settings[0], findings.scaling[1]
    settings = [
        setting.model_copy(
            update={
                "axes": {"batch_size": size, "model.width": width},
                "rate": setting.rate.model_copy(update={"value": 100.0 * width + size}),
            }
        )
        for width in range(20)
        for size in (8, 16)
    ]
    drawn = throughput_figure(findings.model_copy(update={"settings": tuple(settings)}))
    assert {row["series"] for row in drawn.rows if row["shown"]} == {f"width={width}" for width in range(12, 20)}
    points = [
        point.model_copy(
            update={
                "series": f"width {width}",
                "devices": devices,
                "speedup": point.speedup.model_copy(update={"value": 1 + width * (devices - 1) / 10}),
            }
        )
        for width in range(20)
        for devices in (1, 2 if width < 19 else 3)
    ]
    scaled = scaling_figure(findings.model_copy(update={"scaling": tuple(points)}))
    assert {row["series"] for row in scaled.rows if row["shown"]} == {f"width {width}" for width in range(12, 20)}
    assert (
        scaled.note
        == "All lines: weak scaling. The best-scaling 8 of 20 measured lines are drawn; the CSV contains all."
    )


def test_a_line_over_batch_sizes_alone_is_named_by_its_common_values(findings):
    settings = findings.settings[:3:2]
    settings = [setting.model_copy(update={"axes": {"batch_size": setting.axes["batch_size"]}}) for setting in settings]
    figure = throughput_figure(findings.model_copy(update={"settings": tuple(settings)}))
    assert {row["series"] for row in figure.rows} == {"32-bit, 1 process"}


def test_each_chart_carries_its_alternative_text(findings, sweep):
    for figure in build_figures(findings, sweep):
        if isinstance(figure, Figure):
            assert {chart["description"] for chart in figure.fluid_specifications().values()} == {figure.alt}


def test_the_segments_of_a_step_are_labelled_where_the_label_fits(findings, sweep):
    figure = next(figure for figure in build_figures(findings, sweep) if figure.name == "breakdown")
    assert {"backward 40 %", "forward 30 %", "10 %"} <= texts(svg_of(figure))
    assert not {"2 %", "3 %", "host to device 2 %"} & texts(svg_of(figure))
