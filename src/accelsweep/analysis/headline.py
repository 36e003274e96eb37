"""Building blocks of every recommendation: its headline, and sentences about ratios and quality."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import NamedTuple

from accelsweep.analysis.baseline_comparison import Rules
from accelsweep.analysis.costs import common_memory_metric, median_of
from accelsweep.analysis.quality import NOT_MEASURED, QualityMeasure, is_not_worse, is_share, is_worse
from accelsweep.analysis.statistical_power import planned_repeats
from accelsweep.config.setting import label, label_parts
from accelsweep.metrics import quality_name
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import SettingFinding
from accelsweep.records.plan import Manifest
from accelsweep.significant_digits import (
    UNKNOWN,
    fixed,
    format_ratio,
    interval_digits,
    is_uninformative,
    ratio_bound,
    ratio_digits,
    significant,
)
from accelsweep.tasks import PROCESS_RATE, SIZE_METRICS

MOST_WORDS = 8
"""The most words of a setting's name in a headline."""


class Wording(NamedTuple):
    """Phrases for higher and lower values of the compared metric.

    `gain` is formatted with a ratio, `beyond` with a percentage.
    """

    noun: str
    more: str
    gain: str
    unknown_gain: str
    nothing: str
    beyond: str


FASTER = Wording(
    noun="rate",
    more="faster",
    gain="is {} as fast",
    unknown_gain="is faster, by an unknown factor",
    nothing="nothing is faster",
    beyond="is more than {} faster",
)

WHOLE_PROCESS = Wording(
    noun="rate",
    more="faster",
    gain="runs the whole process {} as fast",
    unknown_gain="runs the whole process faster, by an unknown factor",
    nothing="nothing runs the whole process faster",
    beyond="runs the whole process more than {} faster",
)

LARGER = Wording(
    noun="largest batch",
    more="larger",
    gain="fits a batch {} as large",
    unknown_gain="fits a larger batch, by an unknown factor",
    nothing="nothing fits a larger batch",
    beyond="fits a batch more than {} larger",
)


@dataclass(frozen=True)
class Situation:
    """The inputs to a recommendation: the settings' findings, the rules behind their verdicts, and the observed noise.

    `front` lists the settings on the Pareto front; `noise` is the standard deviation of a log rate within a block, or
    None if unknown. `rivals` returns the settings that cannot be distinguished from a given setting. `block_seconds` is
    the wall time of one additional block, `run_seconds` the mean of a run's, or None if unknown. `metric` is the metric
    by which settings are compared.
    """

    manifest: Manifest
    settings: Sequence[SettingFinding]
    rules: Rules
    quality: QualityMeasure
    noise: float | None
    front: Sequence[str]
    rivals: Callable[[SettingFinding], Sequence[SettingFinding]]
    block_seconds: float | None = None
    run_seconds: float | None = None
    metric: str = "samples_per_second"

    @property
    def repeats(self) -> int:
        """The number of repeats that the settings' ratios are based on."""
        return planned_repeats(self.settings, self.manifest)

    @property
    def room(self) -> int:
        """The number of further blocks that may be recommended before the total reaches `repeats_most`."""
        return max(0, self.manifest.options.repeats_most - self.repeats)

    @property
    def baseline(self) -> SettingFinding | None:
        """The measured baseline, if any."""
        return next((setting for setting in self.settings if setting.verdict is Verdict.baseline), None)

    @property
    def baseline_name(self) -> str:
        """The baseline's name."""
        return self.baseline.label if self.baseline is not None else "the baseline"

    @property
    def quality_name(self) -> str:
        """The quality metric's name for use in a sentence: `accuracy`."""
        return quality_name(self.quality.metric)

    @property
    def wording(self) -> Wording:
        """The phrases for the compared metric."""
        if self.metric == PROCESS_RATE:
            return WHOLE_PROCESS
        return LARGER if self.metric in SIZE_METRICS else FASTER

    def having(self, *verdicts: Verdict) -> list[SettingFinding]:
        """Return the settings that have one of these verdicts."""
        return [setting for setting in self.settings if setting.verdict in verdicts]


def as_opening(text: str) -> str:
    """Capitalise a sentence that begins with a setting's name, unless it is a value or a key, such as `bf16-mixed`."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text


def gain_headline(setting: SettingFinding, baseline: SettingFinding | None, wording: Wording = FASTER) -> str:
    """Return `batch 128, 32-bit is 1.8x as fast`; the number is omitted if the interval is uninformative."""
    ratio = setting.ratio
    assert ratio is not None
    if ratio.low is None or ratio.high is None:
        claim = wording.gain.format(f"{ratio.value:.3g}x")
    elif is_uninformative(ratio.low, ratio.high):
        claim = wording.unknown_gain
    else:
        claim = wording.gain.format(f"{ratio_digits(ratio.value, ratio.low, ratio.high)[0]}x")
    return f"{headline_name(setting, baseline)} {claim}"


def claim(situation: Situation, setting: SettingFinding) -> str:
    """Return what is claimed of a faster setting: its gain, and whether it keeps its quality."""
    gain, name = gain_headline(setting, situation.baseline, situation.wording), situation.quality_name
    verdict = setting.quality_verdict
    if verdict == NOT_MEASURED:
        return gain
    if is_worse(verdict):
        return f"{gain}, but {quality_change(situation, setting)}"
    if is_not_worse(verdict):
        kept = f"its {name} does not rise" if situation.quality.better == "min" else f"keeps its {name}"
        return f"{gain} and {kept}"
    return f"{gain}; its {name} is not confirmed yet"


def interval_sentence(ratio: Estimate, situation: Situation) -> str:
    """Return `1.6x to 2.8x (95 %), compared with batch 32, 32-bit.`; the confidence is that of all intervals."""
    against = f"compared with {situation.baseline_name}"
    if ratio.low is None or ratio.high is None:
        return f"No interval, {against}."
    _, low, high = ratio_digits(ratio.value, ratio.low, ratio.high)
    span = f"{low}x to {high}x"
    if is_uninformative(ratio.low, ratio.high):
        span = ratio_bound(ratio.value, ratio.low, ratio.high)
    if span == UNKNOWN:
        return f"The factor by which it is {situation.wording.more} is {UNKNOWN}, {against}."
    return f"{as_opening(span)} ({100 * situation.rules.family.confidence:.3g} %), {against}."


def ratio_text(ratio: Estimate, name: str, wording: Wording = FASTER) -> str:
    """Return `2.1x [2.0, 2.2] the rate of NAME`, where NAME is the baseline's name."""
    if (text := format_ratio(ratio.value, ratio.low, ratio.high)) == UNKNOWN:
        return f"its {wording.noun} relative to that of {name} is {UNKNOWN}"
    return f"{text} the {wording.noun} of {name}"


def memory_text(setting: SettingFinding) -> str | None:
    """Describe a setting's memory use: `233 MiB, 1 % of the machine` (no share if the size is not in the inventory)."""
    name = common_memory_metric([setting])
    used = median_of(setting, name) if name is not None else None
    if used is None:
        return None
    return ", ".join(part for part in (f"{used / 2**20:,.0f} MiB", setting.memory_description) if part)


def with_full_stop(text: str) -> str:
    """Return the text with exactly one full stop at the end; an empty text remains empty."""
    return text.rstrip(".") + "." if text else ""


def headline_name(setting: SettingFinding, other: SettingFinding | None) -> str:
    """Return a setting's name in at most `MOST_WORDS`: in full, its differences from `other`, or its first parts."""
    parts = label_parts(setting.axes)
    if _word_count(parts) <= MOST_WORDS:
        return label(setting.axes)
    if other is not None:
        parts = tuple(part for part in parts if part not in label_parts(other.axes)) or parts
    first = list(parts)
    while len(first) > 1 and _word_count(first) > MOST_WORDS:
        first.pop()
    omitted = len(parts) - len(first)
    return ", ".join(first) + (f" and {omitted} more" if omitted else "")


def _word_count(parts: Iterable[str]) -> int:
    return sum(len(part.split()) for part in parts)


# Quality: a sentence that reports a speed-up also reports what happens to the quality, so that none is one-sided.


def quality_sentence(situation: Situation, setting: SettingFinding) -> str:
    """Describe the quality: `Accuracy 0.987 against 0.989: it may be lower by up to 1.1 points; 1.0 is allowed.`."""
    name = situation.quality_name
    name, base = name[0].upper() + name[1:], situation.baseline
    if setting.quality is None:
        return f"{name} was not measured."
    if base is None or base.quality is None:
        return f"{name} {significant(setting.quality.value)}; the baseline's was not measured."
    values = f"{name} {significant(setting.quality.value)} against {significant(base.quality.value)}"
    measure, difference, verdict = situation.quality, setting.quality_difference, setting.quality_verdict
    minimized = measure.better == "min"
    lower, points = ("higher", "") if minimized else ("lower", "")
    scale, digits = 1.0, significant(measure.margin, 2)
    if is_share(measure.metric):
        scale, points, digits = 100.0, " points", significant(100.0 * measure.margin, 2)
    if is_not_worse(verdict):
        _, _, why = verdict.partition(" (")
        if why:
            return f"{values}: {why.removesuffix(')')}."
        if verdict.startswith("quality: better"):
            return f"{values}: better by more than {digits}{points}."
        same = "the same within" if verdict.startswith("quality: same") else f"not {lower} by more than"
        return f"{values}: {same} {digits}{points}."
    if difference is None or difference.low is None or difference.high is None:
        return f"{values}: {difference.reason if difference and difference.reason else 'not comparable yet'}."
    if is_worse(verdict):
        least, most = sorted((scale * abs(difference.low), scale * abs(difference.high)))
        _, low, high = interval_digits(scale * abs(difference.value), least, most)
        return f"{values}: {lower} by {low} to {high}{points}."
    loss = fixed(scale * (difference.high if minimized else -difference.low), _decimals(digits), ROUND_CEILING)
    return f"{values}: it may be {lower} by up to {loss}{points}; {digits} is allowed."


def _decimals(digits: str) -> int:
    return len(digits.partition(".")[2])


def quality_change(situation: Situation, setting: SettingFinding) -> str:
    """Return how a worse setting's quality moves: `accuracy falls from 0.972 to 0.916`."""
    base, moves = situation.baseline, "rises" if situation.quality.better == "min" else "falls"
    if setting.quality is None or base is None or base.quality is None:
        return f"{situation.quality_name} {moves}"
    before, after = significant(base.quality.value), significant(setting.quality.value)
    return f"{situation.quality_name} {moves} from {before} to {after}"
