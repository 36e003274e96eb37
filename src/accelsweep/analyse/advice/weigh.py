"""The cells weighed against each other: how much their repeats can show, which are worth choosing, and the advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from accelsweep.analyse.advice.minutes import block_seconds
from accelsweep.analyse.advice.recommend import recommend
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.collected.runs import CellRuns
from accelsweep.analyse.findings.against_baseline import Comparison, Rules, noise_against_baseline
from accelsweep.analyse.findings.pareto import candidates, front, objectives
from accelsweep.analyse.findings.quality import QualityMeasure
from accelsweep.analyse.findings.rivals import not_told_apart
from accelsweep.analyse.statistics.intervals import significant
from accelsweep.analyse.statistics.repeats import planned_repeats
from accelsweep.core.findings.choices import Recommendation
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.recorded.hardware import HardwareKind
from accelsweep.repeats.power import smallest_visible_effect


@dataclass(frozen=True)
class Weighed:
    """The results of weighing the cells against each other. `visible` is the smallest effect that can be seen."""

    repeats: int
    visible: float | None
    pareto: tuple[str, ...]
    objectives: tuple[str, ...]
    recommendation: Recommendation


def weigh(
    manifest: Manifest,
    groups: Sequence[CellRuns],
    comparisons: Sequence[Comparison],
    cells: tuple[CellFinding, ...],
    rules: Rules,
    measure: QualityMeasure,
    names: Mapping[HardwareKind, str],
) -> Weighed:
    """Weigh the cells against each other: repeats, noise, Pareto front, recommendation."""
    noise, repeats = noise_against_baseline(groups, comparisons), planned_repeats(cells, manifest)
    chosen = candidates(cells)
    goals, seconds = objectives(chosen, measure, rules.threshold), block_seconds(groups, manifest)
    pareto = tuple(chosen[index].cell for index in front(goals, len(chosen)))
    situations = {
        hardware: Situation(
            *(manifest, part, rules, measure, noise, pareto, partial(_rivals, groups, cells, rules), seconds),
            metric=groups[0].rate_metric,
        )
        for hardware, part in _by_baseline(comparisons, cells, names).items()
    }
    return Weighed(repeats, _visible(repeats, noise, rules), pareto, tuple(goals), recommend(situations))


def _rivals(
    groups: Sequence[CellRuns], cells: Sequence[CellFinding], rules: Rules, best: CellFinding
) -> list[CellFinding]:
    """Return the findings of the cells that cannot be told apart from `best`, one of `cells`."""
    found = {id(one): cell for one, cell in zip(groups, cells, strict=True)}
    chosen = next(one for one, cell in zip(groups, cells, strict=True) if cell is best)
    return [found[id(one)] for one in not_told_apart(chosen, groups, rules)]


def _by_baseline(
    comparisons: Sequence[Comparison], cells: tuple[CellFinding, ...], names: Mapping[HardwareKind, str]
) -> dict[str, tuple[CellFinding, ...]]:
    """Return the cells by the hardware of their baseline; all of them in one group where there is one baseline."""
    partners = [one.partner for one in comparisons]
    kinds = [names.get(one.hardware) if one else None for one in partners]
    several = sorted({kind for kind in kinds if kind is not None})
    if len(several) < 2:
        return {"": cells}
    return {kind: tuple(cell for cell, own in zip(cells, kinds, strict=True) if own == kind) for kind in several}


def _visible(repeats: int, noise: float | None, rules: Rules) -> float | None:
    if noise is None:
        return None
    family, threshold = rules.family, rules.threshold
    effect = smallest_visible_effect(
        repeats, noise, family=family.size, confidence=family.confidence, threshold=threshold
    )
    return None if effect is None else significant(effect)
