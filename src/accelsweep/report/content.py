"""A report's content, independent of its format: the page and the Markdown report both render it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from accelsweep import registry
from accelsweep.metrics import MEMORY_METRICS, quality_name
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Choice, Findings, SettingFinding
from accelsweep.records.layout import RunsPlace
from accelsweep.records.run_record import doubt_description
from accelsweep.report import formatting as fmt
from accelsweep.report.captions import CAPTIONS, TABLE_FIGURES
from accelsweep.report.figures.breakdown import breakdown_figure
from accelsweep.report.figures.drift import drift_figure
from accelsweep.report.figures.figure import Figure, Skipped
from accelsweep.report.figures.learning import learning_figure
from accelsweep.report.figures.memory import memory_figure
from accelsweep.report.figures.quality import quality_figure
from accelsweep.report.figures.rate import heatmap_figure, throughput_figure
from accelsweep.report.figures.scaling import efficiency_figure, scaling_figure
from accelsweep.report.figures.series import series_figure, setting_series
from accelsweep.report.figures.speedup import speedup_figure
from accelsweep.report.figures.steps import steps_figure
from accelsweep.report.figures.tradeoff import tradeoff_figures
from accelsweep.report.formatting import capitalized, printable_findings
from accelsweep.report.report_tables import build_tables
from accelsweep.report.setting_table import ENERGY, absent_metrics, cost_of, metric_entry, quality_words
from accelsweep.report.table_model import ReportTable
from accelsweep.results import Doubt, Outcome
from accelsweep.significant_digits import is_uninformative, significant

FIRST_FIGURE = "speedup"
"""The figure on the first screen."""

_COSTS = (("usd_per_result", "Cost of a result"), ("usd_per_million_samples", "Cost of 1M samples"), (ENERGY, "Energy"))


@dataclass(frozen=True)
class Tile:
    """A number on the first screen: its name, its value, a smaller line such as its interval, and the baseline's."""

    name: str
    value: str
    detail: str = ""
    baseline: str = ""


@dataclass(frozen=True)
class MainDoubt:
    """The main reason for doubt."""

    text: str
    code: str
    remedy: str


@dataclass(frozen=True)
class Content:
    """A report's texts, tables and figures; `method` is the link to `docs/method.md`, if any.

    `pictures` are figures in files beside the page, by the files' name.
    """

    findings: Findings
    heading: tuple[str, ...]
    tiles: tuple[Tile, ...]
    tiles_title: str
    main_doubt: MainDoubt | None
    provenance: tuple[str, ...]
    scope: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    absent: tuple[str, ...]
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...]
    tables: tuple[ReportTable, ...]
    method: str | None
    pictures: Mapping[str, Figure] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The answer, or the full sentence if there is no headline."""
        return self.findings.recommendation.headline or self.findings.recommendation.sentence

    @property
    def has_numbers(self) -> bool:
        """Whether anything was measured. If not, the report states the reason once and leaves out what is empty."""
        return any(setting.measured for setting in self.findings.settings)

    @property
    def shown_tables(self) -> list[ReportTable]:
        """The tables that the report shows."""
        return [table for table in self.tables if table.rows or self.has_numbers]

    @property
    def first_figure(self) -> Figure | Skipped:
        """The figure on the first screen."""
        figures: tuple[Figure | Skipped, ...] = (*self.figures, *self.skipped)
        return next(figure for figure in figures if figure.name == FIRST_FIGURE)

    @property
    def other_figures(self) -> list[Figure]:
        """The figures below the first screen, except those that belong to tables."""
        return [figure for figure in self.figures if figure.name != FIRST_FIGURE and figure.name not in TABLE_FIGURES]

    def figure_of(self, table: ReportTable) -> Figure | None:
        """Return the figure that belongs above a table, or None."""
        if table.name not in TABLE_FIGURES:
            return None
        return next((figure for figure in self.figures if figure.name == table.name), None)

    @property
    def alternatives(self) -> list[tuple[str, str, str]]:
        """The title, label and sentence of each alternative; the sentence repeats neither title nor label."""
        labels = {
            choice: next((one.label for one in self.findings.settings if choice.chooses(one)), choice.setting)
            for choice in self.findings.recommendation.alternatives
        }
        return [
            (
                choice.title,
                label,
                fmt.sentence(choice.sentence.removeprefix(f"{choice.title}: ").removeprefix(f"{label}: ")),
            )
            for choice, label in labels.items()
        ]


def build_content(raw: Findings, folder: RunsPlace, method: str | None = None) -> Content:
    """Return the content of the report on these findings; `folder` provides the raw steps of the runs to draw."""
    findings = printable_findings(raw)
    figures = build_figures(findings, folder)
    baseline = next((setting for setting in findings.settings if setting.setting == findings.baseline), None)
    advice = findings.recommendation
    named = _chosen(findings, advice.choice or advice.fastest)
    judged = named or baseline
    doubts = tuple(dict.fromkeys([*(judged.doubts if judged else ()), *findings.doubts]))
    pictures = setting_series(findings, folder)
    return Content(
        findings=findings,
        heading=tuple(_heading(findings)),
        tiles=build_tiles(findings, named, baseline),
        tiles_title=_tiles_title(findings, named, baseline),
        main_doubt=main_doubt(doubts),
        provenance=tuple(_provenance(findings)),
        scope=tuple(_scope(findings)),
        doubts=doubts,
        absent=tuple(absent_metrics(findings)),
        figures=tuple(figure for figure in figures if isinstance(figure, Figure)),
        skipped=tuple(figure for figure in figures if isinstance(figure, Skipped)),
        tables=tuple(build_tables(findings, pictures.keys())),
        method=method,
        pictures=pictures,
    )


def build_figures(findings: Findings, folder: RunsPlace) -> list[Figure | Skipped]:
    """Return every figure of `captions.CAPTIONS`, drawn or skipped with a reason, in reading order."""
    figures = [
        speedup_figure(findings),
        heatmap_figure(findings),
        throughput_figure(findings),
        scaling_figure(findings),
        efficiency_figure(findings),
        memory_figure(findings),
        drift_figure(findings),
        steps_figure(findings, folder),
        series_figure(findings, folder),
        breakdown_figure(findings),
        quality_figure(findings),
        learning_figure(findings, folder),
        *tradeoff_figures(findings),
        *(registry.load(figure.draw)(findings) for feature in registry.features() for figure in feature.figures),
    ]
    order = list(CAPTIONS)
    return sorted(figures, key=lambda figure: order.index(figure.name))


def _chosen(findings: Findings, choice: Choice | None) -> SettingFinding | None:
    return next((setting for setting in findings.settings if choice and choice.chooses(setting)), None)


def _heading(findings: Findings) -> Iterator[str]:
    """Yield the experiment, the sweep, and what all measured settings have in common."""
    if findings.experiment and findings.experiment != findings.sweep:
        yield f"Experiment {findings.experiment}"
    yield f"{'sweeps merged by hardware' if findings.merged else 'sweep'} {findings.sweep}"
    if findings.shared:
        yield f"all with {findings.shared}"


def build_tiles(findings: Findings, named: SettingFinding | None, baseline: SettingFinding | None) -> tuple[Tile, ...]:
    """Return tiles with the rate, memory, quality, and cost or energy of the named setting or else the baseline."""
    baseline = baseline if baseline is not None and baseline.measured else None
    setting = named or baseline
    if setting is None:
        return ()
    other = baseline if baseline is not setting else None
    rate = _tile(capitalized(fmt.rate_title(findings.rate_metric)), setting.rate, other.rate if other else None)
    return (
        rate,
        _memory_tile(setting, other),
        _quality_tile(findings, setting, other),
        _cost_tile(findings, setting, other),
    )


def _tiles_title(findings: Findings, named: SettingFinding | None, baseline: SettingFinding | None) -> str:
    """Return which setting the tiles show: `Recommended: batch 128`, `Fastest: batch 128`, `Baseline: batch 32`."""
    if named is None:
        return f"Baseline: {baseline.label}" if baseline is not None and baseline.measured else ""
    title = "Recommended" if findings.recommendation.choice else "Fastest"
    return f"{title}: {'the baseline, ' if named is baseline else ''}{named.label}"


def _tile(name: str, value: Estimate | None, baseline: Estimate | None, *more: str) -> Tile:
    """Return a tile showing an estimate with its interval, and the baseline's value without one."""
    text, bracket, interval = fmt.estimate_text(value).partition(" [")
    details = [f"[{interval}" if bracket else "", *more]
    below = f"baseline {fmt.estimate_text(baseline).partition(' [')[0]}" if baseline is not None else ""
    return Tile(name, text.partition(" (no interval")[0], ", ".join(filter(None, details)), below)


def _memory_tile(setting: SettingFinding, other: SettingFinding | None) -> Tile:
    entry, below = metric_entry(setting, MEMORY_METRICS), ""
    if other is not None and (baseline := metric_entry(other, MEMORY_METRICS)).order is not None:
        below = f"baseline {baseline.text}"
    return Tile("Memory", entry.text, setting.memory_description if entry.order is not None else entry.detail, below)


def _quality_tile(findings: Findings, setting: SettingFinding, other: SettingFinding | None) -> Tile:
    title = capitalized(quality_name(findings.quality_metric))
    if setting.quality is None:
        summary = setting.metrics.get("quality")
        remedy = re.search(r": (set [\w.=]+|[\w.]+ is null)", (summary.reason if summary else None) or "")
        return Tile(title, fmt.ABSENT, remedy[1] if remedy else "")
    quality, baseline = (
        finding.quality.model_copy(update={"unit": ""}) if finding and finding.quality else None
        for finding in (setting, other)
    )
    tile = _tile(title, quality, baseline, quality_words(setting) if other else "")
    return replace(tile, value=significant(setting.quality.value))  # as in the headline


def _cost_tile(findings: Findings, setting: SettingFinding, other: SettingFinding | None) -> Tile:
    for name, title in _COSTS:
        if (cost := cost_of(setting, name)) is not None:
            return _tile(title, cost, cost_of(other, name) if other else None)
    note = findings.costs_note if findings.prices else None
    return Tile("Cost", "not known", note or "add prices=NAME")


def main_doubt(doubts: Sequence[Doubt]) -> MainDoubt | None:
    """Return the main reason for doubt, preferably a disturbance."""
    if not doubts:
        return None
    main = next((doubt for doubt in doubts if doubt.disturbing), doubts[0])
    affected = re.match(r"(\d+ of \d+ runs): ", main.message)
    text = capitalized(doubt_description(main)) + (f" in {affected[1]}" if affected else "")
    return MainDoubt(text, main.code, main.remedy)


def _provenance(findings: Findings) -> Iterator[str]:
    """Yield the model, data, machine, torch version, commit, dates and accelsweep version, omitting unknown values."""
    origin, environment = findings.origin, findings.environment
    threads = " to ".join(map(str, _range(origin.threads)))
    memory = " to ".join(fmt.number(size, "B") for size in _range(origin.memory_bytes))
    names = _first_two([hardware.name for hardware in findings.hardware])
    commits = ", ".join(origin.commits)
    parts = (
        _first_two(origin.model),
        _first_two(origin.data),
        ", ".join(filter(None, (names, f"{threads} threads" if threads else "", memory))),
        f"torch {environment['torch']}" if "torch" in environment else "",
        f"commit {commits}{' with local changes' if origin.changed else ''}" if commits else "no commit known",
        " to ".join(origin.dates),
        f"accelsweep {environment['accelsweep']}" if "accelsweep" in environment else "",
    )
    yield from filter(None, parts)


def _first_two(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _range(values: Sequence[int]) -> Sequence[int]:
    """Return the first and last value, or a single value if they are the same."""
    return tuple(dict.fromkeys((values[0], values[-1]))) if values else ()


def _scope(findings: Findings) -> Iterator[str]:
    yield f"{findings.outcomes.get(Outcome.measured, 0):,} of {fmt.count(findings.planned_runs, 'run')} measured"
    yield fmt.count(len(findings.settings), "setting")
    yield f"{fmt.count(findings.repeats, 'repeat')} planned"
    comparisons = "the comparison" if findings.family == 1 else f"all {findings.family} comparisons at once"
    yield f"{fmt.share(findings.confidence)} confidence in {comparisons}"
    yield f"differences below {fmt.share(findings.threshold)} are treated as no difference"
    effect = findings.smallest_visible_effect
    if effect is not None and not is_uninformative(1.0, 1.0 + effect):
        size = f"difference of {fmt.share(effect)}" if effect < 1.0 else f"ratio of {significant(1.0 + effect)}x"
        yield f"expected power: 8 of 10 such sweeps would show a true {size}"


METHOD = (
    "Each run is a separate process group; the run, not the step, is the unit of every interval.",
    "The runs of a block, including the baseline, share an allocation and are measured in random order.",
    "Warm-up is a fixed number of steps before the window; data loading and the first step are reported separately.",
    "The window's length is fixed before it opens; devices are synchronised before the clock is read at both ends.",
    "A rate is the number of samples on all ranks divided by the window's duration on the slowest rank. Results per "
    "hour are one hour divided by the time of training to the target.",
    "A speed-up has a paired t-interval on log-ratios to the baseline within blocks, or Welch's if unpaired.",
    "All intervals against the baseline are widened (Bonferroni) to hold simultaneously at the stated confidence.",
    "Faster and slower need the whole interval beyond the threshold, same needs it within; all else is undecided.",
    "Quality is measured in a separate phase after a fixed number of samples, with one seed per repeat.",
    "Nothing is dropped: outliers, failures and doubts are shown. Unknown values are listed with the reason.",
)
"""A short description of the method; see `docs/method.md` for details."""


def method_of(findings: Findings) -> tuple[str, ...]:
    """Return the lines that describe the method, plus one if interim verdicts determined the number of blocks."""
    if not findings.looks:
        return METHOD
    line = (
        f"Verdicts were computed after {', '.join(map(str, findings.looks))} blocks, and undecided settings got "
        "more blocks. The intervals are repeated confidence intervals, which hold at every look."
    )
    return (*METHOD[:7], line, *METHOD[7:])
