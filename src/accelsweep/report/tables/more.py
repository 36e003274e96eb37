"""The part that a row of the settings opens to: readings, bottleneck, reasons, doubts, and what to type or to paste."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Verdict
from accelsweep.core.recorded.doubt_words import in_words
from accelsweep.report import format as fmt
from accelsweep.report.table import More
from accelsweep.report.tables.readings import OPTIONAL, metric_entry


def common_scopes(cells: Sequence[CellFinding]) -> dict[str, str]:
    """Return, by the reading's title, the sentence on what it covers where that is the same for all cells."""
    found = {}
    for title, names in OPTIONAL:
        scopes = {_scope(cell, names) for cell in cells if metric_entry(cell, names).order is not None}
        if len(cells) > 1 and len(scopes) == 1 and (scope := scopes.pop()):
            found[title] = f"{title}: {scope}."
    return found


def _scope(cell: CellFinding, names: Sequence[str]) -> str:
    known = (cell.metrics[name] for name in names if name in cell.metrics)
    return next((one.scope or "" for one in known if one.median is not None), "")


def known_readings(cells: Sequence[CellFinding]) -> frozenset[str]:
    """Return the titles of the readings that some cell has."""
    return frozenset(
        title for title, names in OPTIONAL if any(metric_entry(cell, names).order is not None for cell in cells)
    )


def more_of(cell: CellFinding, said: Mapping[str, str], known: Collection[str]) -> tuple[More, ...]:
    """Return the lines of one cell.

    `said` has the readings whose scope stands once above all rows, `known` those that some cell has.
    """
    lines = [*_readings(cell, said, known), *_bottleneck(cell), *_why(cell)]
    lines += [
        More("Doubt", f"{in_words(doubt)} ({doubt.code}): {doubt.message.rstrip('.')}. {fmt.sentence(doubt.remedy)}")
        for doubt in cell.doubts
    ]
    lines.append(More("Repeats", f"{cell.measured} of {cell.planned} measured; the setting is {cell.cell} in files"))
    lines += [More("Measure it again", cell.again, code=True)] if cell.again else []
    lines += [More("Trainer", cell.trainer, code=True)] if cell.trainer else []
    return tuple(lines)


def _readings(cell: CellFinding, said: Mapping[str, str], known: Collection[str]) -> list[More]:
    """Return the readings that the cell has, and the reason for those that only others have."""
    lines = []
    for title, names in OPTIONAL:
        entry = metric_entry(cell, names)
        if entry.order is None:
            lines += [More(title, f"{entry.text}: {entry.detail}")] if entry.detail and title in known else []
            continue
        detail = entry.detail.removesuffix(_scope(cell, names)).strip() if title in said else entry.detail
        beside = [detail, cell.memory_words if title == "Memory" else ""]
        text = fmt.share(entry.order) if title == "MFU" else entry.text
        lines.append(More(title, ", ".join(part for part in (text, *beside) if part)))
    return lines


def _bottleneck(cell: CellFinding) -> list[More]:
    found = cell.bottleneck
    return [] if found is None else [More("Bottleneck", f"{found.verdict}: {found.evidence}")]


def _why(cell: CellFinding) -> list[More]:
    """Return why the verdict is what it is, and why runs failed."""
    if cell.verdict is Verdict.baseline:
        lines = [More("Verdict", "this is the baseline, which the others are compared with")]
    else:
        lines = [More("Verdict", f"{cell.verdict.value}: {cell.verdict_reason}")]
    rate = cell.rate
    if rate is not None and rate.low is None and rate.reason:
        lines.append(More("No interval", rate.reason))
    difference = cell.quality_difference
    if difference is not None:
        bare = difference.model_copy(update={"unit": ""})
        lines.append(More("Quality beside the baseline", fmt.estimate_text(bare)))
    return [*lines, *(More("Not measured", reason) for reason in cell.reasons)]
