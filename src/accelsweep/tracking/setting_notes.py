"""The description of a setting's MLflow run: what was found, a link to the report, and why to distrust it."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.analysis.costs import common_memory_metric, median_of
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.results import MAX_DISTURBED_SHARE
from accelsweep.significant_digits import (
    UNKNOWN,
    interval_digits,
    is_uninformative,
    ratio_bound,
    ratio_digits,
    significant,
)
from accelsweep.tasks import PROCESS_RATE, SIZE_METRICS
from accelsweep.tracking.repeat_runs import memory_in_gib, note_sections


def is_disturbed(finding: SettingFinding) -> bool:
    """Return whether disturbances rule out a verdict, or affected the rate of a baseline, which has no verdict."""
    if finding.verdict is not Verdict.baseline:
        return finding.verdict is Verdict.disturbed
    rated = [run for run in finding.runs if run.rate is not None]
    disturbed = [run for run in rated if any(doubt.disturbing for doubt in run.doubts)]
    return len(disturbed) > MAX_DISTURBED_SHARE * len(rated)


def memory_metric(sweep: Findings) -> str | None:
    """Return the memory metric that all measured settings of the sweep have, if any."""
    return common_memory_metric([setting for setting in sweep.settings if setting.measured])


def memory_of(sweep: Findings, finding: SettingFinding) -> dict[str, float]:
    """Return the setting's memory in GiB under its published name; empty if the settings have no metric in common."""
    name = memory_metric(sweep)
    size = None if name is None else median_of(finding, name)
    return {} if name is None or size is None else memory_in_gib(name, size)


def all_reasons(findings: Sequence[SettingFinding]) -> list[str]:
    """Return the distinct reasons why runs of the setting failed."""
    return list(dict.fromkeys(reason for finding in findings for reason in finding.reasons))


def interval_text(ratio: Estimate | None) -> str | None:
    """Return the interval of a speed-up as `1.7x to 2.6x`; None if there is none, or if it is uninformative."""
    if ratio is None or ratio.low is None or ratio.high is None or is_uninformative(ratio.low, ratio.high):
        return None
    _, low, high = ratio_digits(ratio.value, ratio.low, ratio.high)
    return f"{low}x to {high}x"


def setting_note(sweep: Findings, findings: Sequence[SettingFinding], report_link: str | None) -> str:
    """Return a setting's description, which says what was found.

    The link to the report comes first, because MLflow covers all but the first line of a long description with a
    gradient that swallows clicks.
    """
    link = f"[Open the report]({report_link}) \N{MIDDLE DOT} " if report_link else ""
    verdicts = [f"**{finding.verdict}**: {finding.verdict_reason}" for finding in findings]
    if len(findings) == 1:
        (finding,) = findings
        lines = [f"{link}{_headline(sweep, finding)}", "", _readings(sweep, finding), "", *verdicts]
        missing = {name: summary.reason for name, summary in findings[0].metrics.items() if summary.median is None}
    else:
        lines = [f"{link}This setting was run on {len(findings)} kinds of hardware, which the report compares.", ""]
        for finding, verdict in zip(findings, verdicts, strict=True):
            lines.append(f"* {finding.hardware}: {_rate(finding.rate)}; {verdict}")
        missing = {}
    if reasons := all_reasons(findings):
        lines += ["", *(f"* {reason}" for reason in reasons)]
    doubts = [doubt for finding in findings for doubt in finding.doubts]
    return "\n".join(lines + note_sections(doubts, missing))


_CLAIMS = {
    PROCESS_RATE: "runs the whole process {} as fast as",
    **dict.fromkeys(SIZE_METRICS, "fits a batch {} as large as"),
}
"""How a ratio of the compared metric is stated, if not as `is 1.8x as fast as`."""


def _headline(sweep: Findings, finding: SettingFinding) -> str:
    """Return what was found: `**batch 128 is 1.8x as fast as batch 32** (1.6x to 2.0x, 95 %)`, as a sentence."""
    name = finding.label
    if finding.verdict is Verdict.disturbed:
        return (
            f"**{name}: no result, because the measurement was disturbed.** So there are no metrics of speed-up, rate, "
            "quality and memory, and none of costs."
        )
    if finding.verdict is Verdict.baseline:
        rate = "its own runs were disturbed, so it has no rate" if is_disturbed(finding) else _rate(finding.rate)
        return f"**{name} is the baseline**, which the other settings are compared with: {rate}."
    ratio = finding.ratio
    if ratio is None:
        return f"**{name}: {finding.verdict}.**"
    baselines = {other.label for other in sweep.settings if other.verdict is Verdict.baseline}
    baseline = baselines.pop() if len(baselines) == 1 else "its baseline"
    claim = _CLAIMS.get(sweep.rate_metric, "is {} as fast as")
    if ratio.low is None or ratio.high is None:
        return f"**{name} {claim.format(f'{significant(ratio.value)}x')} {baseline}** (no interval: {ratio.reason})."
    if (interval := interval_text(ratio)) is None:
        return f"**{name} against {baseline}: {ratio_bound(ratio.value, ratio.low, ratio.high)}.**"
    value, _, _ = ratio_digits(ratio.value, ratio.low, ratio.high)
    return f"**{name} {claim.format(f'{value}x')} {baseline}** ({interval}, {100 * sweep.confidence:g} %)."


def _readings(sweep: Findings, finding: SettingFinding) -> str:
    """Return the setting's rate, quality and memory as sentences, as far as they are known and undisturbed."""
    if is_disturbed(finding):
        return ""
    parts = []
    if finding.rate is not None and finding.verdict is not Verdict.baseline:
        parts.append(f"{_rate(finding.rate)}.")
    if finding.quality is not None:
        name = (sweep.quality_metric or "quality").removeprefix("val_").capitalize()
        parts.append(f"{name} {_digits(finding.quality)}, {finding.quality_verdict.removeprefix('quality: ')}.")
    memory = [f"{significant(size)} GiB" for size in memory_of(sweep, finding).values()]
    if memory:
        parts.append(f"Memory {', '.join(filter(None, [*memory, finding.memory_description]))}.")
    return " ".join(parts)


def _digits(estimate: Estimate) -> str:
    """Return an estimate without its unit: `0.987 [0.984, 0.990]`."""
    if estimate.low is None or estimate.high is None:
        return significant(estimate.value)
    value, low, high = interval_digits(estimate.value, estimate.low, estimate.high)
    return f"{value} [{low}, {high}]"


def _rate(rate: Estimate | None) -> str:
    if rate is None:
        return "no rate"
    unit = rate.unit.replace("1/s", "samples/s")
    if rate.low is None or rate.high is None:
        return f"{significant(rate.value)} {unit} (no interval: {rate.reason})"
    if is_uninformative(rate.low, rate.high):
        return UNKNOWN
    value, low, high = interval_digits(rate.value, rate.low, rate.high)
    return f"{value} {unit} [{low}, {high}]"
