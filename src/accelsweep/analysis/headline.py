"""The answer in at most twelve words, what belongs beside it, and how far it can be trusted."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelsweep.analysis.baseline_comparison import Rules
from accelsweep.analysis.costs import memory_of_all, value_of
from accelsweep.analysis.power import planned_repeats
from accelsweep.analysis.quality import QualityMeasure
from accelsweep.config.setting import axes_in_words, words_of
from accelsweep.config.tasks import SIZES
from accelsweep.config.versions import words_for
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding, Certainty, Choice, Recommendation
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import doubt_in_words
from accelsweep.significant_digits import UNKNOWN, format_ratio, interval_digits, is_uninformative, ratio_digits

# The advice's words for more and less of the compared metric: a rate is faster, a batch is larger.


class Wording(NamedTuple):
    """Phrases about a metric: `gain` takes a ratio, `beyond` a percentage. `nothing` says that no setting has more."""

    noun: str
    more: str
    less: str
    gain: str
    unknown_gain: str
    nothing: str
    beyond: str


FASTER = Wording(
    noun="rate",
    more="faster",
    less="slower",
    gain="is {} faster",
    unknown_gain="is faster, by how much is not known",
    nothing="nothing is faster",
    beyond="is more than {} faster",
)

LARGER = Wording(
    noun="largest batch",
    more="larger",
    less="smaller",
    gain="holds a batch {} larger",
    unknown_gain="holds a larger batch, by how much is not known",
    nothing="nothing holds a larger batch",
    beyond="holds a batch more than {} larger",
)


def wording_for(metric: str) -> Wording:
    """Return the phrases for the metric that settings are compared by."""
    return LARGER if metric in SIZES else FASTER


MOST_WORDS = 12


def advice(
    headline: str,
    certainty: Certainty,
    *detail: str,
    chosen: CellFinding | None = None,
    alternatives: tuple[Choice, ...] = (),
    settle: str | None = None,
    settle_blocks: int = 0,
) -> Recommendation:
    """Return the advice: its sentence is the headline, the sentences of `detail`, and the doubts of what is chosen."""
    beside = " ".join(part for part in detail if part)
    sentence = " ".join(part for part in (f"{headline}.", beside, _doubts(chosen)) if part)
    choice = None
    if chosen is not None:
        choice = Choice(cell=chosen.cell, title="Recommended", sentence=sentence, hardware=chosen.hardware)
    return Recommendation(
        choice=choice,
        sentence=sentence,
        alternatives=alternatives,
        settle=settle,
        settle_blocks=settle_blocks,
        headline=headline,
        detail=beside,
        certainty=certainty,
    )


def _doubts(chosen: CellFinding | None) -> str:
    words = [f"{doubt_in_words(doubt)} ({doubt.code})" for doubt in chosen.doubts] if chosen is not None else []
    return f"Doubts: {'; '.join(words)}." if words else ""


def faster(cell: CellFinding, baseline: CellFinding | None, wording: Wording = FASTER) -> str:
    """Return `32-bit, 1 process, batch 128 is 1.8x faster`; no number where the interval says nothing."""
    assert cell.ratio is not None
    claim = wording.gain.format(_middle(cell.ratio)) if _told(cell.ratio) else wording.unknown_gain
    return f"{short_name(cell, baseline, MOST_WORDS - len(claim.split()))} {claim}"


def between(ratio: Estimate, baseline: CellFinding | None, wording: Wording = FASTER) -> str:
    """Return `Between 1.4x and 2.4x, against 32-bit, 1 process, batch 32.`, wide intervals too."""
    against = f"against {name_of(baseline)}" if baseline is not None else "against the baseline"
    if ratio.low is None or ratio.high is None:
        return f"Without an interval, {against}."
    if is_uninformative(ratio.low, ratio.high):
        return f"How much {wording.more} is {UNKNOWN}, {against}."
    _, low, high = ratio_digits(ratio.value, ratio.low, ratio.high)
    return f"Between {low}x and {high}x, {against}."


def whole(text: str) -> str:
    """Return a text with one full stop at its end."""
    return text.rstrip(".") + "."


def name_of(cell: CellFinding) -> str:
    """Return a setting's name as prose."""
    return axes_in_words(cell.axes)


def short_name(cell: CellFinding, other: CellFinding | None, most: int) -> str:
    """Return a setting's name in at most `most` words: whole, or what differs from `other`, or the first parts."""
    parts = words_of(cell.axes)
    if _count(parts) > most and other is not None:
        parts = tuple(part for part in parts if part not in words_of(other.axes)) or parts
    kept = list(parts)
    while len(kept) > 1 and _count(kept) > (most if len(kept) == len(parts) else most - 3):
        kept.pop()
    beyond = len(parts) - len(kept)
    return (", ".join(kept) + (f" and {beyond} more" if beyond else "")) or "the only setting"


def _count(parts: Iterable[str]) -> int:
    return sum(len(part.split()) for part in parts)


def _told(ratio: Estimate) -> bool:
    return ratio.low is None or ratio.high is None or not is_uninformative(ratio.low, ratio.high)


def _middle(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3g}x"
    return f"{ratio_digits(ratio.value, ratio.low, ratio.high)[0]}x"


# The basis of advice: the findings of the cells, the rules behind their verdicts, and the observed noise.


@dataclass(frozen=True)
class Situation:
    """The basis of one advice: cells with their verdicts, the rules behind them, and the observed noise.

    `front` names the cells on the Pareto front; `noise` is the standard deviation of a log rate in a block, or None.
    `rivals` gives the cells that cannot be told apart from one of them. `block_seconds` is the wall time that one more
    block takes, or None. `metric` is what the cells are compared by.
    """

    manifest: Manifest
    cells: Sequence[CellFinding]
    rules: Rules
    quality: QualityMeasure
    noise: float | None
    front: Sequence[str]
    rivals: Callable[[CellFinding], Sequence[CellFinding]]
    block_seconds: float | None = None
    metric: str = "samples_per_second"

    @property
    def repeats(self) -> int:
        """The repeats that these cells' ratios rest on."""
        return planned_repeats(self.cells, self.manifest)

    @property
    def room(self) -> int:
        """The number of further blocks that may be advised: no more than `repeats_most` in all; 0 if none."""
        return max(0, self.manifest.settings.repeats_most - self.repeats)

    @property
    def baseline(self) -> CellFinding | None:
        """The measured baseline, or None."""
        return next((cell for cell in self.cells if cell.verdict is Verdict.baseline), None)

    @property
    def baseline_name(self) -> str:
        """The baseline's name as prose."""
        return axes_in_words(self.baseline.axes) if self.baseline is not None else "the baseline"

    def having(self, *verdicts: Verdict) -> list[CellFinding]:
        """Return the cells with one of these verdicts."""
        return [cell for cell in self.cells if cell.verdict in verdicts]

    @property
    def wording(self) -> Wording:
        """The words for more and less of the compared metric."""
        return wording_for(self.metric)


# Cells and commands in the words of the advice.


def against_baseline(ratio: Estimate, name: str, wording: Wording = FASTER) -> str:
    """Return a ratio in words, wide ones too: `2.1x [2.0, 2.2] the rate of NAME`, the baseline's name."""
    if ratio.low is None or ratio.high is None or not is_uninformative(ratio.low, ratio.high):
        return f"{format_ratio(ratio.value, ratio.low, ratio.high)} the {wording.noun} of {name}"
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
    part = next(iter(manifest.parts.values()), None)
    kind = "ab-" if manifest.compared else f"{part.command}-" if part else ""
    own = kind + (manifest.experiment or "").replace("/", "-")
    asked = manifest.searches_for or manifest.sweep
    named = [] if asked == own else ["--name", asked]
    named += ["--until-decided"] if manifest.settings.until_decided else []
    words = [*words_for(manifest.compared), *manifest.overrides, *named, *manifest.submitted_with]
    if part is not None:
        words = [part.command, *words[1:], *part.words]
    return shlex.join(["accelsweep", *words])
