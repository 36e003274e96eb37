"""`--format github`: one annotation a setting for the forge that runs a gate, and a summary in Markdown.

The signs that end a line or a property of a workflow command are written as the runner reads them (actions/toolkit,
`packages/core/src/command.ts`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.driver.console import say
from accelsweep.errors import InputError, nearest
from accelsweep.report.markdown import escape
from accelsweep.report.units import ratio_text

if TYPE_CHECKING:
    from accelsweep.answers.forms.versions import AbAnswer, VersionedSetting

FORMATS = ("text", "github")
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
"""The environment variable by which the runner names the file that a step's summary is written to."""

_LEVELS: Mapping[str | None, str] = {"regression": "error", "not measured": "warning"}


def check_format(name: str) -> None:
    """Raise InputError for a format that is not known."""
    if name not in FORMATS:
        raise InputError(f"--format {name}: there is no such format{nearest(name, FORMATS)}; take text or github")


def annotate(answer: AbAnswer) -> None:
    """Print one annotation for each setting, and add the summary to the runner's file, where there is one."""
    for row in answer.rows:
        say(annotation(row, answer.fail_if))
    if path := os.environ.get(SUMMARY_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(answer))


def annotation(row: VersionedSetting, fail_if: str | None) -> str:
    """Return a workflow command: an error for what fails the gate, a warning for what could not be judged."""
    level = _LEVELS.get(row.gate, "notice")
    beside = f" ({row.gate}: {fail_if})" if row.gate is not None else ""
    ratio = f"{ratio_text(row.ratio)}, " if row.ratio else ""
    text = f"{row.label}: {ratio}{row.verdict}{beside}; {row.reason}"
    return f"::{level} title={_property(f'accelsweep {row.verdict}')}::{_data(text)}"


def summary(answer: AbAnswer) -> str:
    """Return the comparison as Markdown: the headline, a table with a line for each setting, the gate."""
    against = f"against {answer.versions[0].name}"
    lines = [
        f"### {escape(answer.headline)}",
        "",
        f"| setting | rate {escape(against)} | verdict | gate |",
        "|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(_cells(row))} |" for row in answer.rows]
    told = f"`{answer.fail_if}`: {answer.gate}. " if answer.fail_if is not None else ""
    return "\n".join([*lines, "", f"{told}Sweep {escape(answer.sweep)}, {_blocks(answer.rows)}.", "", ""])


def _cells(row: VersionedSetting) -> tuple[str, ...]:
    return escape(row.label), escape(ratio_text(row.ratio)) if row.ratio else "-", row.verdict, row.gate or "-"


def _blocks(rows: Sequence[VersionedSetting]) -> str:
    counts = sorted({row.blocks for row in rows})
    return f"{' to '.join(dict.fromkeys(map(str, (counts[0], counts[-1]))))} blocks" if counts else "no blocks"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
