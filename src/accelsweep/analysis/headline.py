"""Building blocks of every recommendation: a headline of at most twelve words, sentences about ratios, and commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelsweep.analysis.baseline_comparison import Rules
from accelsweep.analysis.costs import common_memory_metric, median_of
from accelsweep.analysis.quality import QualityMeasure
from accelsweep.analysis.statistical_power import planned_repeats
from accelsweep.config.setting import axis_descriptions, describe_axes
from accelsweep.config.versions import command_words
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Certainty, Choice, Recommendation, SettingFinding
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import doubt_description
from accelsweep.significant_digits import UNKNOWN, format_ratio, interval_digits, is_uninformative, ratio_digits
from accelsweep.tasks import PROCESS_RATE, SIZE_METRICS

MOST_WORDS = 12


class Wording(NamedTuple):
    """Phrases for higher and lower values of the compared metric.

    `gain` is formatted with a ratio, `beyond` with a percentage.
    """

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
    unknown_gain="is faster, by an unknown factor",
    nothing="nothing is faster",
    beyond="is more than {} faster",
)

WHOLE_PROCESS = Wording(
    noun="rate",
    more="faster",
    less="slower",
    gain="makes the whole process {} faster",
    unknown_gain="makes the whole process faster, by an unknown factor",
    nothing="nothing makes the whole process faster",
    beyond="makes the whole process more than {} faster",
)

LARGER = Wording(
    noun="largest batch",
    more="larger",
    less="smaller",
    gain="fits a batch {} larger",
    unknown_gain="fits a larger batch, by an unknown factor",
    nothing="nothing fits a larger batch",
    beyond="fits a batch more than {} larger",
)


@dataclass(frozen=True)
class Situation:
    """The inputs to a recommendation: the settings' findings, the rules behind their verdicts, and the observed noise.

    `front` lists the settings on the Pareto front; `noise` is the standard deviation of a log rate within a block, or
    None if unknown. `rivals` returns the settings that cannot be distinguished from a given setting. `block_seconds` is
    the wall time of one additional block, or None if unknown. `metric` is the metric by which settings are compared.
    """

    manifest: Manifest
    settings: Sequence[SettingFinding]
    rules: Rules
    quality: QualityMeasure
    noise: float | None
    front: Sequence[str]
    rivals: Callable[[SettingFinding], Sequence[SettingFinding]]
    block_seconds: float | None = None
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
        """The baseline's name in prose."""
        return describe_axes(self.baseline.axes) if self.baseline is not None else "the baseline"

    @property
    def wording(self) -> Wording:
        """The phrases for the compared metric."""
        if self.metric == PROCESS_RATE:
            return WHOLE_PROCESS
        return LARGER if self.metric in SIZE_METRICS else FASTER

    def having(self, *verdicts: Verdict) -> list[SettingFinding]:
        """Return the settings that have one of these verdicts."""
        return [setting for setting in self.settings if setting.verdict in verdicts]


def advice(
    headline: str,
    certainty: Certainty,
    *detail: str,
    chosen: SettingFinding | None = None,
    alternatives: tuple[Choice, ...] = (),
    settle: str | None = None,
    settle_blocks: int = 0,
) -> Recommendation:
    """Build a recommendation from the headline, the sentences in `detail`, and the doubts about the chosen setting."""
    details = " ".join(part for part in detail if part)
    doubts = [f"{doubt_description(doubt)} ({doubt.code})" for doubt in chosen.doubts] if chosen is not None else []
    parts = (f"{headline}.", details, f"Doubts: {'; '.join(doubts)}." if doubts else "")
    sentence, choice = " ".join(part for part in parts if part), None
    if chosen is not None:
        choice = Choice(setting=chosen.setting, title="Recommended", sentence=sentence, hardware=chosen.hardware)
    return Recommendation(
        choice=choice,
        sentence=sentence,
        alternatives=alternatives,
        settle=settle,
        settle_blocks=settle_blocks,
        headline=headline,
        detail=details,
        certainty=certainty,
    )


def gain_headline(setting: SettingFinding, baseline: SettingFinding | None, wording: Wording = FASTER) -> str:
    """Return `32-bit, 1 process, batch 128 is 1.8x faster`; the number is omitted if the interval is uninformative."""
    ratio = setting.ratio
    assert ratio is not None
    if ratio.low is None or ratio.high is None:
        claim = wording.gain.format(f"{ratio.value:.3g}x")
    elif is_uninformative(ratio.low, ratio.high):
        claim = wording.unknown_gain
    else:
        claim = wording.gain.format(f"{ratio_digits(ratio.value, ratio.low, ratio.high)[0]}x")
    return f"{short_name(setting, baseline, MOST_WORDS - len(claim.split()))} {claim}"


def interval_sentence(ratio: Estimate, baseline: SettingFinding | None, wording: Wording = FASTER) -> str:
    """Return `Between 1.4x and 2.4x, compared with 32-bit, 1 process, batch 32.`."""
    against = f"compared with {setting_text(baseline)}" if baseline is not None else "compared with the baseline"
    if ratio.low is None or ratio.high is None:
        return f"No interval, {against}."
    if is_uninformative(ratio.low, ratio.high):
        return f"The factor by which it is {wording.more} is {UNKNOWN}, {against}."
    _, low, high = ratio_digits(ratio.value, ratio.low, ratio.high)
    return f"Between {low}x and {high}x, {against}."


def ratio_text(ratio: Estimate, name: str, wording: Wording = FASTER) -> str:
    """Return `2.1x [2.0, 2.2] the rate of NAME`, where NAME is the baseline's name."""
    if ratio.low is None or ratio.high is None or not is_uninformative(ratio.low, ratio.high):
        return f"{format_ratio(ratio.value, ratio.low, ratio.high)} the {wording.noun} of {name}"
    if ratio.low <= 1.0 <= ratio.high:
        return f"its {wording.noun} relative to that of {name} is {UNKNOWN}"
    return f"{wording.more if ratio.low > 1.0 else wording.less} than {name}; by how much is {UNKNOWN}"


def percent_change(ratio: Estimate) -> tuple[str, str]:
    """Return a rate's change in percent, and its interval in brackets ('' if there is none)."""
    value = 100.0 * (ratio.value - 1.0)
    if ratio.low is None or ratio.high is None:
        return f"{value:.1f}", ""
    middle, low, high = interval_digits(value, 100.0 * (ratio.low - 1.0), 100.0 * (ratio.high - 1.0))
    return middle, f" [{low}, {high}]"


def memory_text(setting: SettingFinding) -> str | None:
    """Describe a setting's memory use: `233 MiB, 1 % of the machine` (no share if the size is not in the inventory)."""
    name = common_memory_metric([setting])
    used = median_of(setting, name) if name is not None else None
    if used is None:
        return None
    return ", ".join(part for part in (f"{used / 2**20:,.0f} MiB", setting.memory_description) if part)


def with_full_stop(text: str) -> str:
    """Return the text with exactly one full stop at the end."""
    return text.rstrip(".") + "."


def setting_text(setting: SettingFinding) -> str:
    """Return a setting's name in prose."""
    return describe_axes(setting.axes)


def short_name(setting: SettingFinding, other: SettingFinding | None, most: int) -> str:
    """Return a setting's name in at most `most` words: in full, its differences from `other`, or its first parts."""

    def count(parts: Iterable[str]) -> int:
        return sum(len(part.split()) for part in parts)

    parts = axis_descriptions(setting.axes)
    if count(parts) > most and other is not None:
        parts = tuple(part for part in parts if part not in axis_descriptions(other.axes)) or parts
    first = list(parts)
    while len(first) > 1 and count(first) > (most if len(first) == len(parts) else most - 3):
        first.pop()
    omitted = len(parts) - len(first)
    return (", ".join(first) + (f" and {omitted} more" if omitted else "")) or "the only setting"


def add_blocks_command(manifest: Manifest, added: int) -> str | None:
    """Return the command line that adds the given number of blocks to this sweep; None if the number is 0.

    The number is omitted for sweeps that are still in their pilot (`repeats: auto`) and sweeps run with
    `--until-decided`, because they determine it themselves.
    """
    if not added:
        return None
    command, options = sweep_command(manifest), manifest.options
    if options.pilot or options.until_decided:
        return command
    return (
        f"{command} repeats={options.repeats + added}" if options.auto_repeats else f"{command} --add-repeats {added}"
    )


def sweep_command(manifest: Manifest) -> str:
    """Return the command line that continues this sweep."""
    part = next(iter(manifest.parts.values()), None)
    kind = "ab-" if manifest.compared else f"{part.command}-" if part else ""
    name = manifest.searches_for or manifest.sweep
    default = manifest.entry.default_name if manifest.entry else manifest.experiment or ""
    is_default = name == kind + default.replace("/", "-")
    options = [] if is_default else ["--name", name]
    options += ["--until-decided"] if manifest.options.until_decided else []
    options = [*manifest.entry_arguments, *options, *manifest.profile_arguments]
    words = [*command_words(manifest.compared), *manifest.overrides, *options]
    if part is not None:
        words = [part.command, *words[1:], *part.words]
    return shlex.join(["accelsweep", *words])
