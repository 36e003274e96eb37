"""Builds parts of the recommendation: alternatives, quality losses, several kinds of hardware, missing comparisons."""

from __future__ import annotations

import math
import shlex
from collections import Counter
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
    Situation,
    as_opening,
    claim,
    headline_name,
    interval_sentence,
    memory_text,
    quality_sentence,
    ratio_text,
    with_full_stop,
)
from accelsweep.analysis.quality import is_worse
from accelsweep.config.setting import label
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import Certainty, Choice, Recommendation, SettingFinding, advice
from accelsweep.records.not_run_reasons import StopReason
from accelsweep.records.sweep_commands import add_blocks_command, sweep_command
from accelsweep.results import Outcome
from accelsweep.significant_digits import count_of, significant

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
        if not is_worse(setting.quality_verdict) and setting.setting in situation.front
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
            sentence = f"{title}: {setting.label}: {_comparison(situation, setting)}."
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
        heads = [f"on {hardware}: {own.given.headline}" for hardware, own in each.items()]
        rest = f"; and {count_of(len(heads) - 2, 'other kind')} of hardware" if len(heads) > 2 else ""
        result = advice(
            as_opening(f"{'; '.join(heads[:2])}{rest}"),
            max((own.given.certainty for own in each.values()), key=list(Certainty).index),
            f"Measured side by side on {count_of(len(each), 'kind')} of hardware, each with a baseline of its own.",
            "A speed-up applies only to the hardware on which it was measured.",
            "Runs that train to a target, combined with prices, would show which result is the cheapest.",
            alternatives=alternatives,
        )
    else:
        cheapest, *others = sorted(offers, key=lambda offer: (offer.cost.value, offer.hardware))
        dearest, high = others[-1], cheapest.cost.high
        sure = all(high is not None and other.cost.low is not None and high < other.cost.low for other in others)
        gives = "gives the cheapest result" if sure else "may give the cheapest result"
        result = advice(
            as_opening(f"{headline_name(cheapest.setting, None)} on {cheapest.hardware} {gives}"),
            Certainty.sure if sure else Certainty.among_the_best,
            f"On {cheapest.hardware} a result costs {_usd(cheapest.cost)}.",
            f"On {dearest.hardware} ({label(dearest.setting.axes)}) it costs {_usd(dearest.cost)}: "
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
    settle = {name: getattr(longest, name) for name in ("settle", "settle_blocks", "settle_minutes", "settle_purpose")}
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
        return advice(
            "No speed-up can be given: every comparison was refused",
            Certainty.no_answer,
            with_full_stop(refused[0].verdict_reason),
        )
    failed = situation.having(Verdict.not_measured)
    more = "Give an axis several values: batch_size=32,64"
    if failed:
        more = as_opening(f"{failed[0].label}: {failed[0].verdict_reason}")
    settle, purpose = _next_command(situation, failed)
    return advice(
        "Only the baseline was measured, so there is nothing to compare it with",
        *(Certainty.no_answer, with_full_stop(more)),
        settle=settle,
        purpose=purpose,
    )


def no_baseline(situation: Situation) -> Recommendation:
    """Return advice explaining why the baseline has no rate, or stating that there is no baseline."""
    settings = situation.settings
    planned = next((setting for setting in settings if setting.setting == situation.manifest.baseline), None)
    if any(setting.measured for setting in settings):
        failed, what = [planned] if planned else [], "the baseline was not measured"
        why = f"No speed-up can be given: {what if planned else 'the plan specifies no baseline'}"
        more = "Set baseline={key: value} and run again"
        if planned is not None:
            more = as_opening(f"{planned.label}: {planned.verdict_reason}")
    else:
        failed, why = list(settings), f"Nothing was measured: {_outcomes(settings)}"
        reasons = Counter(reason.splitlines()[0] for setting in settings for reason in setting.reasons if reason)
        reasons.pop(StopReason.never_began, None)
        more = reasons.most_common(1)[0][0] if reasons else ""
        others = sum(reason not in more for reason in reasons)  # a reason for not running includes the exception
        more = as_opening(more) + (f" (and {count_of(others, 'other reason')})" if others else "")
    settle, purpose = _next_command(situation, failed)
    return advice(why, Certainty.no_answer, with_full_stop(more), settle=settle, purpose=purpose)


def _outcomes(settings: Sequence[SettingFinding]) -> str:
    """Describe how the runs of settings ended: `all 24 runs crashed`, `20 runs crashed, 4 out of memory`."""
    counts: Counter[Outcome] = Counter()
    for setting in settings:
        counts.update(setting.outcomes)
    if not counts:
        return "the plan contains no settings"
    if set(counts) == {Outcome.unsupported}:
        return "no setting can run here"
    del counts[Outcome.unsupported]
    if set(counts) == {Outcome.not_run}:
        return f"none of {count_of(counts.total(), 'run')} has run"
    (first, number), *others = counts.most_common()
    every = "" if others else "all " if number > 1 else "the only "
    runs = "run" if number == 1 and not others else count_of(number, "run")
    return ", ".join([f"{every}{runs} {_ended(first)}", *(f"{count} {_ended(outcome)}" for outcome, count in others)])


def _ended(outcome: Outcome) -> str:
    words = {
        Outcome.out_of_memory: "ran out of memory",
        Outcome.unsupported: "cannot run",
        Outcome.not_run: "did not run",
    }
    return words.get(outcome, outcome.value.replace("_", " "))


def _next_command(situation: Situation, failed: Sequence[SettingFinding]) -> tuple[str | None, str]:
    """Return the command to type after settings have failed, and its purpose.

    The sweep's own command is of use only if runs are missing: a run that has failed will fail again.
    """
    counts = Counter(outcome for setting in failed for outcome in setting.outcomes)
    name = shlex.quote(situation.manifest.sweep)
    if counts[Outcome.not_run]:
        return sweep_command(situation.manifest), "To measure what is missing"
    del counts[Outcome.unsupported]
    if counts:
        return f"accelsweep runs {name} --outcome {counts.most_common(1)[0][0]}", "To see each run, with its reason"
    return ("accelsweep doctor", "To see what this machine can run") if failed else (None, "")


# Quality: nothing is recommended while a loss is possible, however fast it is.


def quality_open(situation: Situation, faster: Sequence[SettingFinding]) -> Recommendation:
    """Return advice if every faster setting loses or may lose quality: it names the fastest but recommends none.

    `faster` contains at least one setting and is sorted fastest first.
    """
    # prefer a setting without a demonstrated loss that may be as fast as the fastest one
    level = {setting.setting for setting in situation.rivals(faster[0])} | {faster[0].setting}
    may_keep = [setting for setting in faster if not is_worse(setting.quality_verdict)]
    likely = [setting for setting in may_keep if setting.setting in level and not _is_lower(situation, setting)]
    named = (likely or may_keep)[0]
    added = _repeats_to_settle(situation, named)
    more = added if added <= situation.room else 0
    settle = add_blocks_command(situation.manifest, more) or _longer_training(situation)
    assert named.ratio is not None
    return advice(
        as_opening(claim(situation, named)),
        Certainty.quality_open,
        interval_sentence(named.ratio, situation),
        quality_sentence(situation, named),
        tradeoff_sentence(situation, faster[0]) if is_worse(faster[0].quality_verdict) else "",
        "" if more else LONGER_TRAINING,
        fastest=named,
        settle=settle,
        settle_blocks=more,
        purpose=f"To confirm its {situation.quality_name}" if more else "To train longer before validation",
    )


def _longer_training(situation: Situation) -> str | None:
    """Return the command of a new sweep that trains twice as long before validation; None if that is not an option."""
    manifest, samples = situation.manifest, situation.quality.samples
    if samples is None or manifest.compared or manifest.parts:
        return None
    overrides = (*manifest.overrides, f"measure.quality_samples={2 * samples}")
    return sweep_command(manifest.model_copy(update={"overrides": overrides, "sweep": f"{manifest.sweep}-longer"}))


def tradeoff_sentence(situation: Situation, setting: SettingFinding) -> str:
    """Describe a faster setting that is not recommended: `Not recommended: ... is 2.9x as fast, but ...`."""
    return f"Not recommended: {claim(situation, setting)}."


def _is_lower(situation: Situation, setting: SettingFinding) -> bool:
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
    if is_worse(setting.quality_verdict) or difference is None:
        return 0
    distance = sign * difference.value + situation.quality.margin
    if difference.low is None or difference.high is None or distance <= 0.0:
        return 2
    half_width = (difference.high - difference.low) / 2
    return max(2, math.ceil(difference.count * (half_width / distance) ** 2) - difference.count)
