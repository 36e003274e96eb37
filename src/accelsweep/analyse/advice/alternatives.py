"""The cheapest, the greenest and the smallest setting beside the recommended one."""

from __future__ import annotations

from collections.abc import Callable

from accelsweep.analyse.advice.headline import name_of
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import against_baseline, memory
from accelsweep.analyse.findings.pareto import cost_of, memory_of_all, money_of, one_energy_scope, value_of
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE
from accelsweep.core.findings.choices import Choice
from accelsweep.core.findings.measured import CellFinding


def alternatives_to(situation: Situation, best: CellFinding) -> tuple[Choice, ...]:
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
    compared = _comparison(situation, cell) if cell.ratio else "the baseline"
    sentence = f"{title}: {name_of(cell)}: {compared}."
    return Choice(cell=cell.cell, title=title, sentence=sentence, hardware=cell.hardware)


def _comparison(situation: Situation, cell: CellFinding) -> str:
    assert cell.ratio is not None
    parts = [against_baseline(cell.ratio, situation.baseline_name, situation.wording)]
    base = situation.baseline
    money = money_of(situation.cells)
    own, other = cost_of(cell, money), base and cost_of(base, money)
    if own is not None and other:
        parts[0] += f" at {own / other:.2g}x its cost"
    parts += [text for text in (memory(cell),) if text]
    parts.append(cell.quality_verdict.replace("quality: ", "quality "))
    parts += [f"doubts: {', '.join(doubt.code for doubt in cell.doubts)}"] if cell.doubts else []
    return "; ".join(parts)
