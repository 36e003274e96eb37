"""The last steps of a sweep: write findings and a report, and print a short table of intervals, verdicts and doubts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep import registry
from accelsweep.driver.background_processes import mlflow_summary
from accelsweep.driver.console import Listing, Styled, say, say_bold, show, tone_of
from accelsweep.driver.job_queue import record_failed_jobs
from accelsweep.garbage_collection import collect_rarely
from accelsweep.records.early_decisions import decided_runs
from accelsweep.records.file_times import clamp_sweep_times
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import MergedPlace, SweepFolder, existing_sweep, planned_sweep, sweep_parser
from accelsweep.records.not_run_reasons import count_not_run_reasons, needs_change, without_numbers
from accelsweep.records.plan import Manifest
from accelsweep.records.run_files import readable_records
from accelsweep.report import formatting as fmt
from accelsweep.report.formatting import bare_text, next_step, ratio_text, unit_word
from accelsweep.report.table_model import ReportTable
from accelsweep.results import Outcome
from accelsweep.run_config import Run
from accelsweep.schedulers.select import scheduler_of
from accelsweep.signals import exit_code_of
from accelsweep.significant_digits import approximate_duration, count_of
from accelsweep.tasks import METRIC_TITLES

_MAX_ROWS = 40
_MAX_FAILURE_REASONS = 3

_MAX_REFUSALS = 3


@dataclass(frozen=True)
class Summary:
    """What `print_results` reported.

    `unsettled` is the number of runs without a final outcome. `explained` means that a reason was printed for each run
    that did not start; `published` means that the copy in MLflow is complete, or that none is expected. `can_run` means
    that at least one run is supported here.
    """

    unsettled: int
    explained: bool
    published: bool
    can_run: bool


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
    failed = not findings.outcomes.get(Outcome.measured)
    unsettled, nothing_can_run = _unsettled_runs(findings), not findings.planned_runs
    print_headline(findings, in_full=not failed or not (unsettled or nothing_can_run))  # else the reasons are printed
    if nothing_can_run:
        say(f"to see what can run here: accelsweep doctor{_site_override(manifest)}")
    elif findings.recommendation.settle and not failed and not needs_change(folder, manifest):
        say(f"{next_step(findings.recommendation)}: {findings.recommendation.settle}")
    for refusal in findings.refusals[:_MAX_REFUSALS]:
        say(f"refused: {refusal}")
    if left_out := [each for run, each in decided_runs(folder, manifest).items() if not folder.record(run).exists()]:
        saved = approximate_duration(sum(decision.run_seconds for decision in left_out))
        repeats = f"{count_of(len(left_out), 'repeat')} of settings that are much slower than the baseline"
        say(f"left out (limits.stop_early): {repeats}, which saved about {saved}")
    say(f"report: {folder.page}")
    line, published = mlflow_summary(folder, tracking_uri)
    say(line)
    return _print_unsettled(folder, manifest, findings, published=published)


def print_headline(findings: Findings, *, in_full: bool = True) -> None:
    """Print the report's headline and how sure it is, followed, `in_full`, by what qualifies it."""
    advice = findings.recommendation
    say_bold(f"{advice.headline}  [{findings.certainty}]")
    if in_full and (rest := advice.sentence.removeprefix(f"{advice.headline}.").strip()):
        say(rest)


def _site_override(manifest: Manifest) -> str:
    return "" if manifest.site.scheduler == "local" else f" site={manifest.site.name}"


def _unsettled_runs(findings: Findings) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in findings.outcomes.items() if count and not outcome.settled}


def _print_unsettled(folder: SweepFolder, manifest: Manifest, findings: Findings, *, published: bool) -> Summary:
    """Print, at the end of the output, how many runs have no final outcome, why, and what to do."""
    unsettled, reasons = _unsettled_runs(findings), count_not_run_reasons(folder, manifest)
    if unsettled:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in unsettled.items())
        remedy = "fix the cause, then run the same command"
        if set(unsettled) == {Outcome.not_run} and not needs_change(folder, manifest):
            remedy = "the same command tries them again"
        say(f"{sum(unsettled.values())} of {findings.planned_runs} runs have no final outcome ({counts}): {remedy}")
    for line in _failure_lines(folder, manifest, findings, reasons):
        say(line)
    for line in _not_run_lines(reasons):
        say(line)
    explained = bool(reasons) and sum(reasons.values()) >= findings.outcomes.get(Outcome.not_run, 0)
    can_run = any(count for outcome, count in findings.outcomes.items() if outcome is not Outcome.unsupported)
    return Summary(sum(unsettled.values()), explained, published, can_run)


def _failure_lines(folder: SweepFolder, manifest: Manifest, findings: Findings, not_run: Collection[str]) -> list[str]:
    """Return one line for each of the most common reasons why runs failed, the most common one last.

    Reasons that are also among the reasons why others have `not_run` are omitted: those are printed as well.
    """
    failed = {setting.setting for setting in findings.settings if any(not item.settled for item in setting.outcomes)}
    runs = [run for run in manifest.wanted_runs() if Run.parse(run).setting in failed]
    said = "\n".join(map(without_numbers, not_run))
    counts: Counter[tuple[Outcome, str]] = Counter()
    examples: dict[str, str] = {}
    for record in readable_records(folder, runs):
        if not record.outcome.settled:
            reason = str(record.reason).splitlines()[0]
            if (cause := without_numbers(reason)) not in said:
                counts[record.outcome, examples.setdefault(cause, reason)] += 1
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
    final = {Outcome.measured, Outcome.out_of_memory, Outcome.diverged}
    tried = [setting for setting in findings.settings if set(setting.outcomes) != {Outcome.unsupported}]
    if final.isdisjoint(findings.outcomes):
        tried = []  # the reasons are printed below
    shared = f", all with {findings.shared}" if findings.shared else ""
    title = f"{findings.sweep}: {fmt.count(findings.repeats, 'repeat')}{shared}"
    rows = [_row(setting) for setting in _shown(findings, tried)]
    if hidden := len(tried) - len(rows):
        rows.append((f"... and {hidden} more: see the report", "", "", "", "", ""))
    return Listing(title, headings, tuple(rows), numbers=headings[1:3])


def _shown(findings: Findings, settings: list[SettingFinding]) -> list[SettingFinding]:
    """Return the settings that a terminal can show, in their order: the baseline, and those with the highest rates."""
    by_rate = sorted(settings, key=lambda one: (one.setting != findings.baseline, -one.rate.value if one.rate else 0.0))
    shown = {setting.setting for setting in by_rate[:_MAX_ROWS]}
    return [setting for setting in settings if setting.setting in shown]


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


def finalize(folder: SweepFolder, *, summary: bool = False, blocks_ended: bool = False) -> list[str]:
    """Write the sweep's records.parquet, findings.json and report; return the names of the report's files.

    `summary` adds the summary card. `blocks_ended` means that all blocks have just been measured: features then measure
    what explains the findings, and wait for what a cluster reports of its jobs a little later.
    """
    from accelsweep.analysis.analyse_sweep import analyse_folder
    from accelsweep.report.report_files import write_files

    for before_collect in registry.loaded("before_collect"):
        before_collect(folder, blocks_ended=blocks_ended)
    findings = analyse_folder(folder)
    if blocks_ended and any(closer_look(folder, findings) for closer_look in registry.loaded("closer_look")):
        findings = analyse_folder(folder)
    findings.write(folder.findings)
    del findings  # those of a large sweep take 60 MiB, and the report reads its own from the file
    return write_files(folder, summary=summary)


def report_sweeps(home: Path, names: Sequence[str], *, summary: bool = False) -> Path:
    """Write the report of one sweep, or a merged report of several; print its headline and return the page's path.

    `summary` adds the summary card.
    """
    folders = [existing_sweep(home, name) for name in dict.fromkeys(names)]
    if len(folders) == 1:
        finalize(folders[0], summary=summary)
        return _announce(folders[0].findings, folders[0].page, summary=summary)
    from accelsweep.analysis.collect import collect
    from accelsweep.analysis.merge_sweeps import Part, analyse_together
    from accelsweep.report.report_files import write_report

    parts = [Part(folder.name, collect(folder), Manifest.read(folder.manifest)) for folder in folders]
    place = MergedPlace(home, tuple(folder.name for folder in folders))
    analyse_together(place.name, parts, home).write(place.findings)
    return _announce(place.findings, write_report(place, summary=summary), summary=summary)


def _announce(findings: Path, page: Path, *, summary: bool) -> Path:
    print_headline(Findings.read(findings))
    say(f"report: {page}")
    if summary:
        from accelsweep.report.summary_card import SUMMARY_PNG, SUMMARY_SVG

        say(f"card: {page.with_name(SUMMARY_PNG)} and {SUMMARY_SVG}")
    return page


def main(arguments: list[str] | None = None) -> int:
    """Finalize the sweep named on the command line, print the page's path and return the exit code."""
    description = "Collect, analyse and report a sweep. Missing runs become `not_run` rows."
    parser = sweep_parser("driver.finalize", description)
    parser.add_argument("--failed", type=Path, metavar="LOG", help="the log of Snakemake, if it has failed")
    options = parser.parse_args(arguments)

    def run() -> None:
        folder = planned_sweep(options.sweep)
        manifest = Manifest.read(folder.manifest)
        scheduler = scheduler_of(manifest.site)
        if options.failed is not None and scheduler is not None:
            record_failed_jobs(folder, scheduler, options.failed)
        finalize(folder, blocks_ended=options.failed is None)
        clamp_sweep_times(folder)
        print(folder.page, *_not_run_lines(count_not_run_reasons(folder, manifest)), sep="\n")  # noqa: T201 - a command's output

    return exit_code_of(run)


if __name__ == "__main__":
    collect_rarely()
    sys.exit(main())
