"""Cells and commands in the words of the advice."""

from __future__ import annotations

import shlex

from accelsweep.analyse.advice.wording import FASTER, Wording
from accelsweep.analyse.findings.pareto import memory_of_all, value_of
from accelsweep.base.digits import UNKNOWN, interval_digits, ratio_words, says_nothing
from accelsweep.core.cells.versions import words_for
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.planned.plans import Manifest


def against_baseline(ratio: Estimate, name: str, wording: Wording = FASTER) -> str:
    """Return a ratio in words, wide ones too: `2.1x [2.0, 2.2] the rate of NAME`, the baseline's name."""
    if ratio.low is None or ratio.high is None or not says_nothing(ratio.low, ratio.high):
        return f"{ratio_words(ratio.value, ratio.low, ratio.high)} the {wording.noun} of {name}"
    if ratio.low <= 1.0 <= ratio.high:
        return f"its {wording.noun} beside that of {name} is {UNKNOWN}"
    return f"{wording.more if ratio.low > 1.0 else wording.less} than {name}, by how much is {UNKNOWN}"


def percent_change(ratio: Estimate) -> tuple[str, str]:
    """Return the change of a rate in percent, and its interval in brackets, or nothing where there is none."""
    value = 100.0 * (ratio.value - 1.0)
    if ratio.low is None or ratio.high is None:
        return f"{value:.1f}", ""
    middle, low, high = interval_digits(value, 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0))
    return middle, f" [{low}, {high}]"


def memory(cell: CellFinding) -> str | None:
    """Return the memory of a cell, with its share if the inventory tells: `233 MiB, 1 % of the machine`, or None."""
    name = memory_of_all([cell])
    used = value_of(cell, name) if name is not None else None
    if used is None:
        return None
    return ", ".join(part for part in (f"{used / 2**20:,.0f} MiB", cell.memory_words) if part)


def with_rounds(manifest: Manifest, times: int) -> str:
    """Return the command line by which each node of a fleet measures so many times the rounds."""
    assert manifest.fleet is not None
    fleet = manifest.fleet.model_copy(update={"each": times * manifest.fleet.each})
    return command(manifest.model_copy(update={"fleet": fleet}))


def more_blocks(manifest: Manifest, added: int) -> str | None:
    """Return the command line that adds so many blocks to this sweep; None for 0.

    A pilot continues by itself. After its noise has decided the number of blocks, the user gives the number of further
    blocks.
    """
    if not added or manifest.settings.pilot:
        return command(manifest) if added else None
    if manifest.settings.until_decided:
        return command(manifest)
    if manifest.settings.auto_repeats:
        return f"{command(manifest)} repeats={manifest.settings.repeats + added}"
    return f"{command(manifest)} --add-repeats {added}"


def command(manifest: Manifest) -> str:
    """Return the command line that makes this sweep go on, to paste."""
    kind = "ab-" if manifest.compared else "fleet-" if manifest.fleet else ""
    own = kind + (manifest.experiment or "").replace("/", "-")
    asked = manifest.searches_for or manifest.sweep
    named = [] if asked == own else ["--name", asked]
    named += ["--until-decided"] if manifest.settings.until_decided else []
    words = [*words_for(manifest.compared), *manifest.overrides, *named, *manifest.submitted_with]
    if manifest.fleet is not None:
        words = ["fleet", *words[1:], *manifest.fleet.words]
    return shlex.join(["accelsweep", *words])
