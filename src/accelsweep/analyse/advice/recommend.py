"""The recommendation in words with its alternatives, or "nothing yet" and the command that helps."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from accelsweep.analyse.advice.price import price_of, traded
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import against_baseline, command, memory, more_blocks, setting, verb
from accelsweep.analyse.findings.pareto import cost_of, memory_of_all, money_of, one_energy_scope, value_of
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE, NOT_MEASURED, shown_not_worse
from accelsweep.analyse.statistics.intervals import significant
from accelsweep.base.digits import count_of
from accelsweep.core.findings import CellFinding, Choice, Recommendation, Verdict
from accelsweep.plan.blocks.power import repeats_needed

BEYOND_REPEATS = (
    "quieter runs would help more than repeats: stop other work, lengthen the windows, or sweep fewer settings"
)


def recommend(situations: Mapping[str, Situation]) -> Recommendation:
    """Return the recommendation, in words whose numbers stand in the cells' findings.

    `situations` are by the hardware of the baseline. Ratios to baselines on different hardware cannot be compared. So
    with several situations none is preferred: each has its own advice, among the alternatives.
    """
    each = {hardware: _timed(situation, _recommend(situation)) for hardware, situation in situations.items()}
    if len(each) == 1:
        return next(iter(each.values()))
    longest = max(
        (advice for advice in each.values() if advice.settle), key=lambda advice: advice.settle_blocks, default=None
    )
    return Recommendation(
        choice=None,
        sentence=f"Measured side by side on {count_of(len(each), 'kind')} of hardware: a speed-up holds on its own "
        "hardware, so there is one recommendation for each.",
        alternatives=tuple(
            Choice(
                cell=advice.choice.cell if advice.choice else "",
                title=f"On {hardware}",
                sentence=advice.sentence,
                hardware=advice.choice.hardware if advice.choice else None,
            )
            for hardware, advice in each.items()
        ),
        settle=longest.settle if longest else None,
        settle_blocks=longest.settle_blocks if longest else 0,
        settle_minutes=longest.settle_minutes if longest else None,
    )


def _timed(situation: Situation, advice: Recommendation) -> Recommendation:
    """Return the advice with the minutes that its added blocks will take, where earlier runs tell."""
    if situation.block_seconds is None or not advice.settle_blocks:
        return advice
    minutes = significant(advice.settle_blocks * situation.block_seconds / 60)
    return advice.model_copy(update={"settle_minutes": minutes})


def _recommend(situation: Situation) -> Recommendation:
    faster = sorted(situation.having(Verdict.faster), key=lambda cell: (-_ratio(cell), cell.cell))
    sound = [cell for cell in faster if _sound(cell)]
    if sound:
        return _train(situation, sound[0], [cell for cell in faster if _ratio(cell) > _ratio(sound[0])])
    if any(cell.quality_verdict != FASTER_BUT_WORSE for cell in faster):
        return traded(situation, faster)
    if situation.baseline is None:
        return _nothing_without_baseline(situation)
    if disturbed := situation.having(Verdict.disturbed):
        return _disturbed(situation, disturbed)
    open_ones = [*situation.having(Verdict.undecided), *situation.having(Verdict.not_yet)]
    if open_ones:
        decided = sum(len(situation.having(verdict)) for verdict in (Verdict.slower, Verdict.same))
        total = decided + len(faster) + len(open_ones)
        why = (
            f"{len(open_ones)} of {count_of(total, 'comparison')} undecided at {count_of(situation.repeats, 'repeat')}"
        )
        return _not_yet(situation, open_ones, faster, f"Nothing can be recommended yet: {why}")
    return _stay(situation, situation.baseline, faster)


def _sound(cell: CellFinding) -> bool:
    return shown_not_worse(cell.quality_verdict) or cell.quality_verdict == NOT_MEASURED


def _train(situation: Situation, best: CellFinding, traded_ones: Sequence[CellFinding]) -> Recommendation:
    rivals = situation.rivals(best)
    sentence = f"{verb(best)} {setting(best)}: {_comparison(situation, best)}."
    if rivals:
        sentence += f" Not told apart from {_listed(rivals)}."
    if traded_ones:
        sentence += f" {price_of(situation, traded_ones[0])}"
    choice = Choice(cell=best.cell, title="Recommended", sentence=sentence, hardware=best.hardware)
    unsettled = [_ratio(best) / _ratio(cell) for cell in rivals if _ratio(cell) > 0.0]
    unsettled += [_ratio(cell) for cell in situation.having(Verdict.undecided)]
    more = _more_repeats(situation, unsettled)
    return Recommendation(
        choice=choice,
        sentence=sentence,
        alternatives=_alternatives(situation, best),
        settle=more_blocks(situation.manifest, more),
        settle_blocks=more,
    )


def _listed(cells: Sequence[CellFinding]) -> str:
    """Return up to three settings by name, and how many there are beyond."""
    shown = "; ".join(cell.label for cell in cells[:3])
    return shown if len(cells) <= 3 else f"{shown}; and {count_of(len(cells) - 3, 'other setting')}"


def _disturbed(situation: Situation, disturbed: Sequence[CellFinding]) -> Recommendation:
    total = sum(cell.speedup is not None for cell in situation.cells)
    sentence = (
        f"Nothing can be recommended: {len(disturbed)} of {count_of(total, 'comparison')} disturbed "
        f"({disturbed[0].verdict_reason}). Stop other work on the machine, and measure the disturbed runs again."
    )
    settle = shlex.join(["accelsweep", "retry", situation.manifest.sweep, "--outcome", "disturbed"])
    settle += f" && {command(situation.manifest)}"
    return Recommendation(choice=None, sentence=sentence, alternatives=(), settle=settle)


def _comparison(situation: Situation, cell: CellFinding) -> str:
    assert cell.speedup is not None
    parts = [against_baseline(cell.speedup.ratio)]
    base = situation.baseline
    money = money_of(situation.cells)
    own, other = cost_of(cell, money), base and cost_of(base, money)
    if own is not None and other:
        parts[0] += f" at {own / other:.2g}x its cost"
    parts += [text for text in (memory(cell, situation.manifest.site),) if text]
    parts.append(cell.quality_verdict.replace("quality: ", "quality "))
    parts += [f"doubts: {', '.join(doubt.code for doubt in cell.doubts)}"] if cell.doubts else []
    return "; ".join(parts)


def _stay(situation: Situation, baseline: CellFinding, worse: Sequence[CellFinding]) -> Recommendation:
    """Advise to stay with the baseline; `worse` are the cells that are faster but lose quality, fastest first."""
    others = len(situation.having(Verdict.slower)) + len(situation.having(Verdict.same)) + len(worse)
    beyond = f"{situation.rules.threshold * 100:.2g} %"
    sentence = f"Stay with your baseline, {setting(baseline)}: none of {count_of(others, 'other setting')}"
    sentence += f" that could be compared is more than {beyond} faster"
    if worse:
        sentence += f" without losing quality. {price_of(situation, worse[0])}"
    if not others:
        return Recommendation(choice=None, sentence=_nothing_to_compare(situation), alternatives=(), settle=None)
    sentence = sentence.rstrip(".") + "."
    choice = Choice(cell=baseline.cell, title="Recommended", sentence=sentence, hardware=baseline.hardware)
    alternatives = _alternatives(situation, baseline)
    return Recommendation(choice=choice, sentence=choice.sentence, alternatives=alternatives, settle=None)


def _nothing_to_compare(situation: Situation) -> str:
    refused = situation.having(Verdict.refused)
    if refused:
        return f"Nothing can be recommended: every comparison was refused. {refused[0].verdict_reason}"
    return "Nothing can be recommended: only the baseline was measured, and there is nothing to compare it with."


def _nothing_without_baseline(situation: Situation) -> Recommendation:
    measured = [cell for cell in situation.cells if cell.measured]
    wanted = next((cell for cell in situation.cells if cell.cell == situation.manifest.baseline), None)
    if not measured:
        sentence = f"Nothing can be recommended: no run was measured. {_why_nothing(situation, wanted)}."
    elif wanted is None:
        sentence = "Nothing can be recommended: the plan names no baseline; set baseline={key: value} and run again."
    else:
        sentence = f"Nothing can be recommended because the baseline was not measured: {wanted.verdict_reason}."
    settle = command(situation.manifest) if wanted is not None else None
    return Recommendation(choice=None, sentence=sentence, alternatives=(), settle=settle)


def _why_nothing(situation: Situation, baseline: CellFinding | None) -> str:
    if baseline is not None:
        return f"The baseline: {baseline.verdict_reason}"
    if not situation.cells:
        return "The plan has no setting"
    return f"No setting can run here; the first is {situation.cells[0].verdict_reason}"


def _not_yet(
    situation: Situation, undecided: Sequence[CellFinding], worse: Sequence[CellFinding], why: str
) -> Recommendation:
    more = _more_repeats(situation, [_ratio(cell) for cell in undecided])
    then = "more repeats would settle it" if more else BEYOND_REPEATS
    sentence = f"{why}; {then}." + (f" {price_of(situation, worse[0])}" if worse else "")
    settle = more_blocks(situation.manifest, more)
    return Recommendation(choice=None, sentence=sentence, alternatives=(), settle=settle, settle_blocks=more)


def _more_repeats(situation: Situation, ratios: Sequence[float]) -> int:
    """Return how many blocks more should settle most of these ratios; 0 where no number is advised.

    No more than `repeats_most` in all are advised: past that, other things help more.
    """
    family, most = situation.rules.family, situation.manifest.settings.repeats_most
    if not ratios or not situation.room:
        return 0
    if situation.noise is None:
        return min(5, situation.room)
    size, confidence, threshold = family.size, family.confidence, situation.rules.threshold
    needed = [
        repeats_needed(ratio, situation.noise, family=size, confidence=confidence, threshold=threshold)
        for ratio in ratios
        if ratio > 0.0
    ]
    enough = max((repeats for repeats in needed if repeats is not None and repeats <= most), default=None)
    return 0 if enough is None else min(max(enough - situation.repeats, 2), situation.room)


def _alternatives(situation: Situation, best: CellFinding) -> tuple[Choice, ...]:
    """Return the cheapest, the greenest and the smallest cell of the Pareto front, unless it is the choice itself.

    None is called the greenest or the smallest where readings of different kinds would have to be compared.
    """
    sound = [cell for cell in situation.cells if cell.quality_verdict != FASTER_BUT_WORSE]
    on_front = [cell for cell in sound if cell.cell in situation.front]
    memories = memory_of_all(on_front)
    energies_compare = one_energy_scope(on_front)
    wishes: list[tuple[str, Callable[[CellFinding], float | None]]] = [
        ("Cheapest", lambda cell: cost_of(cell, money_of(situation.cells))),
        ("Greenest", lambda cell: cost_of(cell, "joules_per_sample") if energies_compare else None),
        ("Smallest memory", lambda cell: value_of(cell, memories) if memories else None),
    ]
    found = []
    for title, wish in wishes:
        rated = [(value, cell.cell, cell) for cell in on_front if (value := wish(cell)) is not None]
        if rated and (chosen := min(rated, key=lambda item: item[:2])[2]) is not best:
            found.append(_alternative(situation, title, chosen))
    return tuple(found)


def _alternative(situation: Situation, title: str, cell: CellFinding) -> Choice:
    compared = _comparison(situation, cell) if cell.speedup else "your baseline"
    sentence = f"{title}: {setting(cell)}: {compared}."
    return Choice(cell=cell.cell, title=title, sentence=sentence, hardware=cell.hardware)


def _ratio(cell: CellFinding) -> float:
    return cell.speedup.ratio.value if cell.speedup else 0.0
