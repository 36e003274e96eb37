"""The last output of a sweep: a short table with intervals, verdicts and doubts, and the path of the report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
from accelsweep.driver.background_processes import last_line
from accelsweep.driver.console import Listing, Marked, say, show, tone_of
from accelsweep.driver.job_queue import note_failed_jobs
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import SweepFolder, existing_sweep, planned_sweep, sweep_parser
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.records.stop_reasons import reasons_not_run, wants_a_change, without_numbers
from accelsweep.report import units as fmt
from accelsweep.report.table_model import ReportTable
from accelsweep.report.units import bare_text, in_about, ratio_text, unit_word
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.select import engine_of
from accelsweep.signals import exit_code_of
from accelsweep.significant_digits import count_of
from accelsweep.tasks import METRIC_TITLES

_MOST_REASONS = 3


@dataclass(frozen=True)
class Told:
    """The end as the user was told it: how many runs are unsettled, and whether each that did not run has a reason.

    `copied` says whether MLflow has got everything.
    """

    unsettled: int
    explained: bool
    copied: bool


def print_results(folder: SweepFolder, tracking_uri: str | None = None) -> Told:
    """Print the sweep's findings in short; return what they say of runs without a final outcome.

    `tracking_uri` is the store of MLflow that was asked for, None for the usual one.
    """
    findings = Findings.read(folder.findings)
    if any(map(_was_tried, findings.settings)):
        show(_table(findings))
    for line in _stalls(findings):
        say(line)
    for last_lines in registry.loaded("last_lines"):
        for line in last_lines(findings):
            if isinstance(line, ReportTable):
                show(_listing(line))
            else:
                say(line)
    say(findings.recommendation.sentence)
    if findings.recommendation.settle and not wants_a_change(folder, Manifest.read(folder.manifest)):
        say(f"to settle what is open{in_about(findings.recommendation)}: {findings.recommendation.settle}")
    for refusal in findings.refusals[:3]:
        say(f"refused: {refusal}")
    say(f"report: {folder.page}")
    line, copied = last_line(folder, tracking_uri)
    say(line)
    return _print_unsettled(folder, findings, copied=copied)


def _print_unsettled(folder: SweepFolder, findings: Findings, *, copied: bool) -> Told:
    """Say last how many runs have no final outcome, and what kept them from it."""
    manifest = Manifest.read(folder.manifest)
    unsettled = sum(count for outcome, count in findings.outcomes.items() if not outcome.settled)
    if unsettled:
        listed = ", ".join(f"{count} {name}" for name, count in findings.outcomes.items() if not name.settled)
        again = "the same command tries them again"
        if {name for name, count in findings.outcomes.items() if count and not name.settled} == {
            Outcome.not_run
        } and wants_a_change(folder, manifest):
            again = "what keeps them from it has to be changed first"
        say(f"{unsettled} of {findings.planned_runs} runs have no final outcome ({listed}); {again}")
    for line in _lines_of_failures(folder, manifest, findings):
        say(line)
    kept = reasons_not_run(folder, manifest)
    for line in _lines(kept):
        say(line)
    return Told(unsettled, bool(kept) and sum(kept.values()) >= findings.outcomes.get(Outcome.not_run, 0), copied)


def _lines_of_failures(folder: SweepFolder, manifest: Manifest, findings: Findings) -> list[str]:
    """Return a line for each of the commonest reasons for which runs ended without an answer, the commonest last."""
    failed = {
        setting.setting for setting in findings.settings if any(not outcome.settled for outcome in setting.outcomes)
    }
    runs = [run for run in manifest.wanted_runs() if Run.parse(run).setting in failed]
    counts: Counter[tuple[Outcome, str]] = Counter()
    told: dict[str, str] = {}
    for record in readable_records(folder, runs):
        if not record.outcome.settled:
            reason = str(record.reason).splitlines()[0]
            counts[record.outcome, told.setdefault(without_numbers(reason), reason)] += 1
    return [
        f"{outcome}: {count_of(count, 'run')}: {reason}; accelsweep runs {folder.name} --outcome {outcome} lists them"
        for (outcome, reason), count in reversed(counts.most_common(_MOST_REASONS))
    ]


def not_run_lines(folder: SweepFolder) -> list[str]:
    """Return a line for each reason that keeps runs of the sweep from being measured."""
    return _lines(reasons_not_run(folder, Manifest.read(folder.manifest)))


def _lines(kept: Mapping[str, int]) -> list[str]:
    return [f"not_run: {count_of(count, 'run')}: {why}" for why, count in kept.items()]


def _table(findings: Findings) -> Listing:
    rate = METRIC_TITLES.get(findings.rate_metric, unit_word(findings.rate_unit))
    ratio, quality = fmt.ratio_title(findings.rate_metric), findings.quality_metric or "quality"
    headings = ("setting", rate, ratio, "verdict", quality, "doubts")
    rows = tuple(_row(setting) for setting in filter(_was_tried, findings.settings))
    title = f"{findings.sweep}: {findings.repeats} repeats"
    return Listing(title, headings, rows, numbers=headings[1:3])


def _stalls(findings: Findings) -> list[str]:
    """Return a line for each setting whose rate a stall has changed, with the rate that it has without."""
    codes = ("processes_stopped", "stall")
    return [
        f"{setting.label}: {doubt.message}"
        for setting in findings.settings
        for doubt in setting.doubts
        if doubt.code in codes
    ]


def _listing(table: ReportTable) -> Listing:
    """Return a table of the report for the terminal, without the smaller lines of its entries."""
    rows = tuple(tuple(entry.text for entry in row) for row in table.rows)
    numbers = tuple(column.title for column in table.columns if column.numeric)
    return Listing(table.title, tuple(column.title for column in table.columns), rows, numbers)


def _was_tried(setting: SettingFinding) -> bool:
    return set(setting.outcomes) != {Outcome.unsupported}


def _row(setting: SettingFinding) -> tuple[str | Marked, ...]:
    speedup = ratio_text(setting.speedup.ratio) if setting.speedup else "-"
    quality = bare_text(setting.quality) if setting.quality else "-"
    doubts = ", ".join(sorted({doubt.code for doubt in setting.doubts})) or "-"
    rate = bare_text(setting.rate) if setting.rate else _failure(setting)
    return setting.label, rate, speedup, Marked(setting.verdict, tone_of(setting.verdict)), quality, doubts


def _failure(setting: SettingFinding) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in setting.outcomes.items())


# The last steps of a sweep: collect, analyse, report. Missing runs become `not_run` rows.


def finish(folder: SweepFolder) -> Path:
    """Write the sweep's records.parquet, findings.json and report; return the path of the page."""
    finished_files(folder)
    return folder.page


def finished_files(folder: SweepFolder) -> list[str]:
    """Do as `finish` does; return the names of the report's files."""
    from accelsweep.analysis.analyse_sweep import analyse_folder
    from accelsweep.report.report_files import write_files

    for before_collect in registry.loaded("before_collect"):
        before_collect(folder)
    analyse_folder(folder).write(folder.findings)
    return write_files(folder)


def report(home: Path, names: Sequence[str]) -> Path:
    """Write the report of one sweep, or one report of several merged ones; return the path of the page."""
    folders = [existing_sweep(home, name) for name in dict.fromkeys(names)]
    return finish(folders[0]) if len(folders) == 1 else _merged(home, folders)


def _merged(home: Path, folders: Sequence[SweepFolder]) -> Path:
    from accelsweep.analysis.collect import collect
    from accelsweep.analysis.merge_sweeps import Part, analyse_together
    from accelsweep.records.layout import MergedPlace
    from accelsweep.report.report_files import write_report

    parts = [Part(folder.name, collect(folder), Manifest.read(folder.manifest)) for folder in folders]
    place = MergedPlace(home, tuple(folder.name for folder in folders))
    analyse_together(place.name, parts, home).write(place.findings)
    return write_report(place)


def main(arguments: list[str] | None = None) -> int:
    """Finish the sweep named on the command line, print the page's path and return the exit code."""
    description = "Collect, analyse and report a sweep. Missing runs become `not_run` rows."
    parser = sweep_parser("driver.finalize", description)
    parser.add_argument("--log", type=Path, help="Snakemake's log, where it failed")
    given = parser.parse_args(arguments)
    return exit_code_of(lambda: _tell(planned_sweep(given.sweep), given.log))


def _tell(folder: SweepFolder, log: Path | None) -> None:
    engine = engine_of(Manifest.read(folder.manifest).site)
    if log is not None and engine is not None:
        note_failed_jobs(folder, engine, log)
    print(finish(folder), *not_run_lines(folder), sep="\n")  # noqa: T201 - a command's answer


if __name__ == "__main__":
    sys.exit(main())
