"""The last steps of a sweep: write findings and a report, and print a short table of intervals, verdicts and doubts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
from accelsweep.driver.background_processes import mlflow_summary
from accelsweep.driver.console import Listing, Styled, say, show, tone_of
from accelsweep.driver.job_queue import record_failed_jobs
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import MergedPlace, SweepFolder, existing_sweep, planned_sweep, sweep_parser
from accelsweep.records.not_run_reasons import count_not_run_reasons, needs_change, without_numbers
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.report import formatting as fmt
from accelsweep.report.formatting import bare_text, in_about, ratio_text, unit_word
from accelsweep.report.table_model import ReportTable
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.select import scheduler_of
from accelsweep.signals import exit_code_of
from accelsweep.significant_digits import count_of
from accelsweep.tasks import METRIC_TITLES

_MAX_FAILURE_REASONS = 3

_MAX_REFUSALS = 3


@dataclass(frozen=True)
class Summary:
    """What `print_results` reported.

    `unsettled` is the number of runs without a final outcome. `explained` means that a reason was printed for each run
    that did not start; `published` means that the copy in MLflow is complete, or that none is expected.
    """

    unsettled: int
    explained: bool
    published: bool


def print_results(folder: SweepFolder, tracking_uri: str | None = None) -> Summary:
    """Print a summary of the sweep's findings. `tracking_uri` is the requested MLflow store; None for the default."""
    findings, manifest = Findings.read(folder.findings), Manifest.read(folder.manifest)
    if (table := _results_table(findings)).rows:
        show(table)
    for setting in findings.settings:
        for doubt in setting.doubts:
            if doubt.code in ("processes_stopped", "stall"):
                say(f"{setting.label}: {doubt.message}")
    for last_lines in registry.loaded("last_lines"):
        for line in last_lines(findings):
            if isinstance(line, ReportTable):
                show(_listing(line))
            else:
                say(line)
    say(findings.recommendation.sentence)
    if findings.recommendation.settle and not needs_change(folder, manifest):
        say(f"to settle open questions{in_about(findings.recommendation)}: {findings.recommendation.settle}")
    for refusal in findings.refusals[:_MAX_REFUSALS]:
        say(f"refused: {refusal}")
    say(f"report: {folder.page}")
    line, published = mlflow_summary(folder, tracking_uri)
    say(line)
    return _print_unsettled(folder, manifest, findings, published=published)


def _print_unsettled(folder: SweepFolder, manifest: Manifest, findings: Findings, *, published: bool) -> Summary:
    """Print, at the end of the output, how many runs have no final outcome, and why."""
    open_runs = {outcome: count for outcome, count in findings.outcomes.items() if count and not outcome.settled}
    if open_runs:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in open_runs.items())
        blocked = set(open_runs) == {Outcome.not_run} and needs_change(folder, manifest)
        remedy = "fix the cause first" if blocked else "the same command tries them again"
        unsettled = sum(open_runs.values())
        say(f"{unsettled} of {findings.planned_runs} runs have no final outcome ({counts}); {remedy}")
    for line in _failure_lines(folder, manifest, findings):
        say(line)
    reasons = count_not_run_reasons(folder, manifest)
    for line in _not_run_lines(reasons):
        say(line)
    explained = bool(reasons) and sum(reasons.values()) >= findings.outcomes.get(Outcome.not_run, 0)
    return Summary(sum(open_runs.values()), explained, published)


def _failure_lines(folder: SweepFolder, manifest: Manifest, findings: Findings) -> list[str]:
    """Return one line for each of the most common reasons why runs failed, the most common one last."""
    failed = {setting.setting for setting in findings.settings if any(not item.settled for item in setting.outcomes)}
    runs = [run for run in manifest.wanted_runs() if Run.parse(run).setting in failed]
    counts: Counter[tuple[Outcome, str]] = Counter()
    examples: dict[str, str] = {}
    for record in readable_records(folder, runs):
        if not record.outcome.settled:
            reason = str(record.reason).splitlines()[0]
            counts[record.outcome, examples.setdefault(without_numbers(reason), reason)] += 1
    return [
        f"{outcome}: {count_of(count, 'run')}: {reason}; accelsweep runs {folder.name} --outcome {outcome} lists them"
        for (outcome, reason), count in reversed(counts.most_common(_MAX_FAILURE_REASONS))
    ]


def _not_run_lines(reasons: Mapping[str, int]) -> list[str]:
    return [f"not_run: {count_of(count, 'run')}: {reason}" for reason, count in reasons.items()]


def _results_table(findings: Findings) -> Listing:
    rate = METRIC_TITLES.get(findings.rate_metric, unit_word(findings.rate_unit))
    ratio, quality = fmt.ratio_title(findings.rate_metric), findings.quality_metric or "quality"
    headings = ("setting", rate, ratio, "verdict", quality, "doubts")
    tried = [setting for setting in findings.settings if set(setting.outcomes) != {Outcome.unsupported}]
    title = f"{findings.sweep}: {findings.repeats} repeats"
    return Listing(title, headings, tuple(map(_row, tried)), numbers=headings[1:3])


def _row(setting: SettingFinding) -> tuple[str | Styled, ...]:
    failure = ", ".join(f"{count} {outcome}" for outcome, count in setting.outcomes.items())
    return (
        setting.label,
        bare_text(setting.rate) if setting.rate else failure,
        ratio_text(setting.speedup.ratio) if setting.speedup else "-",
        Styled(setting.verdict, tone_of(setting.verdict)),
        bare_text(setting.quality) if setting.quality else "-",
        ", ".join(sorted({doubt.code for doubt in setting.doubts})) or "-",
    )


def _listing(table: ReportTable) -> Listing:
    """Convert a report table for the terminal, omitting the details of its entries."""
    rows = tuple(tuple(entry.text for entry in row) for row in table.rows)
    numbers = tuple(column.title for column in table.columns if column.numeric)
    return Listing(table.title, tuple(column.title for column in table.columns), rows, numbers)


def finalize(folder: SweepFolder) -> list[str]:
    """Write the sweep's records.parquet, findings.json and report; return the names of the report's files."""
    from accelsweep.analysis.analyse_sweep import analyse_folder
    from accelsweep.report.report_files import write_files

    for before_collect in registry.loaded("before_collect"):
        before_collect(folder)
    analyse_folder(folder).write(folder.findings)
    return write_files(folder)


def report_sweeps(home: Path, names: Sequence[str]) -> Path:
    """Write the report of one sweep, or a merged report of several; return the path of the page."""
    folders = [existing_sweep(home, name) for name in dict.fromkeys(names)]
    if len(folders) == 1:
        finalize(folders[0])
        return folders[0].page
    from accelsweep.analysis.collect import collect
    from accelsweep.analysis.merge_sweeps import Part, analyse_together
    from accelsweep.report.report_files import write_report

    parts = [Part(folder.name, collect(folder), Manifest.read(folder.manifest)) for folder in folders]
    place = MergedPlace(home, tuple(folder.name for folder in folders))
    analyse_together(place.name, parts, home).write(place.findings)
    return write_report(place)


def main(arguments: list[str] | None = None) -> int:
    """Finalize the sweep named on the command line, print the page's path and return the exit code."""
    description = "Collect, analyse and report a sweep. Missing runs become `not_run` rows."
    parser = sweep_parser("driver.finalize", description)
    parser.add_argument("--log", type=Path, help="the log of the failed Snakemake process")
    options = parser.parse_args(arguments)

    def run() -> None:
        folder = planned_sweep(options.sweep)
        manifest = Manifest.read(folder.manifest)
        scheduler = scheduler_of(manifest.site)
        if options.log is not None and scheduler is not None:
            record_failed_jobs(folder, scheduler, options.log)
        finalize(folder)
        print(folder.page, *_not_run_lines(count_not_run_reasons(folder, manifest)), sep="\n")  # noqa: T201 - a command's output

    return exit_code_of(run)


if __name__ == "__main__":
    sys.exit(main())
