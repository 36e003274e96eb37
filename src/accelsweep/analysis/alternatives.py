"""Builds parts of the recommendation: alternatives, quality losses, several kinds of hardware, missing comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accelsweep.analysis.costs import (
    common_memory_metric,
    cost_metric,
    cost_of,
    cost_ratio,
    median_of,
    same_energy_scope,
)
from accelsweep.analysis.headline import (
    MOST_WORDS,
    Situation,
    add_blocks_command,
    advice,
    memory_text,
    ratio_text,
    setting_text,
    short_name,
    sweep_command,
    with_full_stop,
)
from accelsweep.analysis.quality import FASTER_BUT_WORSE
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Certainty, Choice, Recommendation, SettingFinding
from accelsweep.significant_digits import count_of, interval_digits, significant

COST_OF_RESULT = "usd_per_result"

LONGER_TRAINING = (
    "More repeats are unlikely to settle it: train longer before validation, or widen analysis.quality_margin."
)


def alternatives_to(situation: Situation, best: SettingFinding) -> tuple[Choice, ...]:
    """Return the cheapest, greenest and smallest settings on the Pareto front, leaving out `best` itself.

    The greenest or smallest is omitted if finding it would require comparing readings of different kinds.
    """
    on_front = [
        setting
        for setting in situation.settings
        if setting.quality_verdict != FASTER_BUT_WORSE and setting.setting in situation.front
    ]
    memory, energies_compare = common_memory_metric(on_front), same_energy_scope(on_front)
    criteria: list[tuple[str, Callable[[SettingFinding], float | None]]] = [
        ("Cheapest", lambda setting: cost_of(setting, cost_metric(situation.settings))),
        ("Greenest", lambda setting: cost_of(setting, "joules_per_sample") if energies_compare else None),
        ("Smallest memory", lambda setting: median_of(setting, memory) if memory else None),
    ]
    choices = []
    for title, criterion in criteria:
        values = [
            (value, setting.setting, setting) for setting in on_front if (value := criterion(setting)) is not None
        ]
        if values and (setting := min(values, key=lambda item: item[:2])[2]) is not best:
            sentence = f"{title}: {setting_text(setting)}: {_comparison(situation, setting)}."
            choices.append(Choice(setting=setting.setting, title=title, sentence=sentence, hardware=setting.hardware))
    return tuple(choices)


def _comparison(situation: Situation, setting: SettingFinding) -> str:
    if setting.ratio is None:
        return "the baseline"
    text = ratio_text(setting.ratio, situation.baseline_name, situation.wording)
    if (cost := cost_ratio(setting, situation.baseline, situation.settings)) is not None:
        text += f" at {cost:.2g}x its cost"
    quality = setting.quality_verdict.replace("quality: ", "quality ")
    doubts = f"doubts: {', '.join(doubt.code for doubt in setting.doubts)}" if setting.doubts else ""
    return "; ".join(part for part in (text, memory_text(setting), quality, doubts) if part)


# Several kinds of hardware: ratios to different baselines are not comparable, but costs per result are.


class HardwareAdvice(NamedTuple):
    """The recommendation for one kind of hardware and the situation it is based on."""

    situation: Situation
    given: Recommendation


class _Offer(NamedTuple):
    hardware: str
    setting: SettingFinding
    cost: Estimate


def recommend_across_hardware(each: Mapping[str, HardwareAdvice]) -> Recommendation:
    """Combine the advice for several kinds of hardware into one recommendation: the cheapest per result.

    Each kind is represented by the setting that its advice chose, or by its baseline if the advice chose none. The
    kinds are compared on `usd_per_result`, and none is preferred unless this cost is known for all of them. The choice
    is certain only if the entire interval for its cost is below the intervals of all other kinds.
    """
    alternatives = tuple(
        Choice(
            setting=own.given.choice.setting if own.given.choice else "",
            title=f"On {hardware}",
            sentence=own.given.sentence,
            hardware=hardware,
        )
        for hardware, own in each.items()
    )
    offers = _offers(each)
    if offers is None:
        result = advice(
            f"Each of {len(each)} kinds of hardware has its own recommendation",
            max((own.given.certainty for own in each.values()), key=list(Certainty).index),
            f"Measured side by side on {count_of(len(each), 'kind')} of hardware.",
            "A speed-up applies only to the hardware on which it was measured.",
            "Runs that train to a target, combined with prices, would show which result is the cheapest.",
            alternatives=alternatives,
        )
    else:
        cheapest, *others = sorted(offers, key=lambda offer: (offer.cost.value, offer.hardware))
        dearest, high = others[-1], cheapest.cost.high
        sure = all(high is not None and other.cost.low is not None and high < other.cost.low for other in others)
        claim = "the cheapest result" if sure else "perhaps the cheapest result"
        result = advice(
            f"{short_name(cheapest.setting, None, MOST_WORDS - len(claim.split()) - 1)}: {claim}",
            Certainty.sure if sure else Certainty.among_the_best,
            f"On {cheapest.hardware} a result costs {_usd(cheapest.cost)}.",
            f"On {dearest.hardware} ({setting_text(dearest.setting)}) it costs {_usd(dearest.cost)}: "
            f"{dearest.cost.value / cheapest.cost.value:.2g}x as much.",
            "" if sure else "The cost intervals overlap.",
            "A speed-up applies only to the hardware on which it was measured.",
            chosen=cheapest.setting,
            alternatives=alternatives,
        )
    unsettled = [own.given for own in each.values() if own.given.settle]
    if not unsettled:
        return result
    longest = max(unsettled, key=lambda given: given.settle_blocks)
    settle = {name: getattr(longest, name) for name in ("settle", "settle_blocks", "settle_minutes")}
    return result.model_copy(update=settle)


def _offers(each: Mapping[str, HardwareAdvice]) -> list[_Offer] | None:
    """Return the setting that represents each kind of hardware.

    None if the cost per result of any kind is missing or comes from disturbed runs.
    """
    offers = []
    for hardware, own in each.items():
        choice, situation = own.given.choice, own.situation
        setting = next((one for one in situation.settings if choice and choice.chooses(one)), situation.baseline)
        if setting is None or COST_OF_RESULT not in setting.costs or own.given.certainty is Certainty.disturbed:
            return None
        offers.append(_Offer(hardware, setting, setting.costs[COST_OF_RESULT]))
    return offers


def _usd(cost: Estimate) -> str:
    if cost.low is None or cost.high is None:
        return f"{significant(cost.value)} USD (without an interval)"
    return f"{significant(cost.value)} USD [{significant(cost.low)}, {significant(cost.high)}]"


# Advice when no comparison is possible: the reason and the command to continue.


def nothing_to_compare(situation: Situation) -> Recommendation:
    """Return advice stating that only the baseline was measured, or why every comparison was rejected."""
    if refused := situation.having(Verdict.refused):
        why, more = "every comparison was refused", with_full_stop(refused[0].verdict_reason)
    else:
        why, more = "only the baseline was measured", "There is nothing to compare it with."
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more)


def no_baseline(situation: Situation) -> Recommendation:
    """Return advice explaining why the baseline has no rate, or stating that there is no baseline."""
    settings = situation.settings
    planned = next((setting for setting in settings if setting.setting == situation.manifest.baseline), None)
    if any(setting.measured for setting in settings) and planned is None:
        why, more = "the plan specifies no baseline", "Set baseline={key: value} and run again."
    elif any(setting.measured for setting in settings) and planned is not None:
        why, more = "the baseline was not measured", f"It is {planned.verdict_reason}."
    else:
        why = "no run was measured"
        if planned is not None:
            more = f"The baseline: {planned.verdict_reason}."
        elif settings:
            more = f"No setting can run here; the first is {settings[0].verdict_reason}."
        else:
            more = "The plan contains no settings."
    settle = sweep_command(situation.manifest) if planned is not None else None
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more, settle=settle)


# Quality: a sentence that reports a speed-up also reports any quality loss, so that no headline is one-sided.


def no_sound_setting(situation: Situation, faster: Sequence[SettingFinding]) -> Recommendation:
    """Return advice if every faster setting loses or may lose quality: it describes a trade-off but chooses no setting.

    `faster` contains at least one setting and is sorted fastest first.
    """
    # prefer a setting without a demonstrated loss that may be as fast as the fastest one
    level = {setting.setting for setting in situation.rivals(faster[0])} | {faster[0].setting}
    named = next(
        (setting for setting in faster if setting.setting in level and not _is_worse(situation, setting)), faster[0]
    )
    added = _repeats_to_settle(situation, named)
    more = added if added <= situation.room else 0
    return advice(
        f"No setting is recommended: no faster one demonstrably keeps its {quality_name(situation)}",
        Certainty.not_yet,
        tradeoff_sentence(situation, named),
        LONGER_TRAINING if added > situation.room else "",
        settle=add_blocks_command(situation.manifest, more),
        settle_blocks=more,
    )


def tradeoff_sentence(situation: Situation, setting: SettingFinding) -> str:
    """Describe a faster setting's trade-off: `2.9x ..., and accuracy falls from 0.97 to 0.92`."""
    assert setting.ratio is not None
    base, name = situation.baseline, quality_name(situation)
    gain = f"A faster setting is {setting_text(setting)}: {ratio_text(setting.ratio, situation.baseline_name)}"
    if setting.quality is None or base is None or base.quality is None:
        return f"{gain}, and its {name} could not be compared."
    before, after = significant(base.quality.value), significant(setting.quality.value)
    moves = f"{name} {'rises' if situation.quality.better == 'min' else 'falls'} from {before} to {after}"
    difference, interval = setting.quality_difference, "difference without an interval"
    if difference is not None and difference.low is not None and difference.high is not None:
        middle, low, high = interval_digits(difference.value, difference.low, difference.high)
        interval = f"difference {middle} [{low}, {high}]"
    if setting.quality_verdict == FASTER_BUT_WORSE:
        return f"{gain}, and {moves} ({interval})."
    if _is_worse(situation, setting):
        margin = significant(situation.quality.margin)
        return f"{gain}; {moves}, perhaps by more than the margin of {margin} ({interval})."
    return f"{gain}; {name} is undecided ({after}, was {before}; {interval})."


def quality_name(situation: Situation) -> str:
    """Return the quality metric's name for use in a sentence: `accuracy`."""
    return (situation.quality.metric or "quality").removeprefix("val_")


def quality_sentence(situation: Situation, setting: SettingFinding) -> str:
    """Describe a recommended setting's quality: `Accuracy the same (0.988, was 0.990).`."""
    name, base = quality_name(situation), situation.baseline
    name = name[0].upper() + name[1:]
    if setting.quality is None:
        return f"{name} was not measured."
    verdict, bracket, why = setting.quality_verdict.removeprefix("quality: ").partition(" (")
    words = "the same" if verdict == "same" else verdict
    if bracket:
        return f"{name} {words} ({why}."
    was = f", was {significant(base.quality.value)}" if base is not None and base.quality is not None else ""
    return f"{name} {words} ({significant(setting.quality.value)}{was})."


def _is_worse(situation: Situation, setting: SettingFinding) -> bool:
    """Return whether the entire interval for the quality difference indicates a loss, however small."""
    difference = setting.quality_difference
    if difference is None or difference.low is None or difference.high is None:
        return False
    return difference.low > 0.0 if situation.quality.better == "min" else difference.high < 0.0


def _repeats_to_settle(situation: Situation, setting: SettingFinding) -> int:
    """Return how many more blocks would narrow the quality interval enough to clear the margin.

    This assumes that the centre of the interval stays the same. Return 0 if the quality is settled or not comparable.
    """
    difference, sign = setting.quality_difference, -1.0 if situation.quality.better == "min" else 1.0
    if setting.quality_verdict == FASTER_BUT_WORSE or difference is None:
        return 0
    distance = sign * difference.value + situation.quality.margin
    if difference.low is None or difference.high is None or distance <= 0.0:
        return 2
    half_width = (difference.high - difference.low) / 2
    return max(2, math.ceil(difference.count * (half_width / distance) ** 2) - difference.count)
