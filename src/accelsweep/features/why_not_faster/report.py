"""The causes in the report and in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from accelsweep.features.why_not_faster.model import Explanation, WhyNotFaster
from accelsweep.records.findings import Findings
from accelsweep.report.table_model import Column, Entry, ReportTable

MAX_LINES = 3
"""Maximum number of comparisons to explain in the terminal; the report explains all of them."""

INCONCLUSIVE = "nothing conclusive"


def tables(findings: Findings) -> list[ReportTable]:
    """Return a table with a row per comparison that is no faster, if there is any."""
    section = findings.section(WhyNotFaster)
    if section is None:
        return []
    labels = {setting.setting: setting.label for setting in findings.settings}
    return [
        ReportTable(
            name="why_not_faster",
            title="Why not faster",
            caption="One measured cause for each setting that is no faster than its baseline although its precision, "
            "compilation, devices or batch size were expected to make it so. Where nothing conclusive was found, "
            "nothing is claimed.",
            columns=tuple(Column(title) for title in ("Setting", "Verdict", "Cause", "Evidence")),
            rows=tuple(_row(explanation, labels) for explanation in section.explanations),
            data=[explanation.model_dump(mode="json") for explanation in section.explanations],
            empty="Every comparison is faster.",
        )
    ]


def _row(explanation: Explanation, labels: Mapping[str, str]) -> tuple[Entry, ...]:
    setting, baseline = (labels.get(name, name) for name in (explanation.setting, explanation.against))
    cause = Entry(INCONCLUSIVE, tone="absent") if explanation.cause is None else Entry(explanation.cause)
    verdict = Entry(explanation.verdict, f"against {baseline}", tone=explanation.verdict)
    return Entry(setting, explanation.hardware or ""), verdict, cause, Entry(explanation.evidence)


def last_lines(findings: Findings) -> Iterator[str]:
    """Yield a line for each of the first comparisons that are no faster."""
    section = findings.section(WhyNotFaster)
    if section is None:
        return
    for explanation in islice(section.explanations, MAX_LINES):
        cause = INCONCLUSIVE if explanation.cause is None else explanation.cause.value
        no_faster = "slower" if explanation.verdict == "slower" else "no faster"
        yield f"{explanation.label} is {no_faster}: {cause} ({explanation.evidence})"
    if (left := len(section.explanations) - MAX_LINES) > 0:
        yield f"{left} more in the report, under Why not faster"
