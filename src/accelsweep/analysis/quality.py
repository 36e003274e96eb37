"""Quality guards speed: is a cell's quality as good as the baseline's? Paired by seed, with the config's margin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.analysis.baseline_comparison import pair_of
from accelsweep.analysis.intervals import Family, Interval, linear_estimate, mean, paired_interval, t_interval
from accelsweep.analysis.run_results import CellRuns
from accelsweep.analysis.simultaneous_intervals import Pair, intervals
from accelsweep.records.estimates import Estimate, Verdict

UNDECIDED = "quality: undecided"

WORSE = "quality: worse"

_SHARES = ("acc", "f1", "auc", "auroc", "precision", "recall", "dice", "iou", "jaccard", "specificity")
"""Metrics whose name has one of these words are shares: torchmetrics' names and their usual short forms."""

NOT_MEASURED = "quality: not measured"

FASTER_BUT_WORSE = "faster, but worse"


@dataclass(frozen=True)
class CellQuality:
    """A cell's quality: the mean over its repeats, the difference to the baseline, and the wording of the verdict."""

    mean: Estimate | None
    difference: Estimate | None
    verdict: str


def shown_not_worse(verdict: str) -> bool:
    """Return whether a cell's quality verdict says that the interval excludes a loss beyond the margin."""
    return verdict.startswith(("quality: same", "quality: not worse", "quality: better"))


@dataclass(frozen=True)
class QualityMeasure:
    """The quality metric: its name, whether `max` or `min` is `better`, and the margin that does not matter."""

    metric: str | None
    better: str | None
    margin: float


def measure_of(groups: Sequence[CellRuns], margin: float) -> QualityMeasure:
    """Return the quality metric of the cells' configs (`measure.quality_metric` and `quality_better`: max or min)."""
    measure = next((group.config.measure for group in groups if group.config is not None), None)
    if measure is None or measure.quality_metric is None:
        return QualityMeasure(None, None, margin)
    return QualityMeasure(measure.quality_metric, measure.quality_better, margin)


@dataclass(frozen=True)
class Asked:
    """A row whose quality is asked for, the baseline that it is compared with (itself, or None), and its speed."""

    group: CellRuns
    partner: CellRuns | None
    speed: Verdict

    def pair(self) -> Pair | None:
        """Return the qualities of both sides by seed, or None where they have no seed in common."""
        if self.partner is None or self.partner.cell == self.group.cell:
            return None
        own, other = by_seed(self.group), by_seed(self.partner)
        return pair_of(self.group, self.partner, own, other) if own.keys() & other.keys() else None


def qualities(asked: Sequence[Asked], family: Family, measure: QualityMeasure) -> list[CellQuality]:
    """Return the quality of each row beside that of its baseline.

    The differences are paired by seed; their variances have pools of their own, one for each kind of hardware.
    """
    pairs = [one.pair() for one in asked]
    found = iter(intervals([pair for pair in pairs if pair is not None], family, paired_interval))
    return [
        _quality(one, next(found) if pair is not None else None, family, measure)
        for one, pair in zip(asked, pairs, strict=True)
    ]


def _quality(one: Asked, interval: Interval | None, family: Family, measure: QualityMeasure) -> CellQuality:
    group, partner = one.group, one.partner
    own = by_seed(group)
    if not own:
        return CellQuality(None, None, NOT_MEASURED)
    alone = Family(1, family.confidence)
    unit = measure.metric or next(
        run.metrics["quality"].unit for run in group.measured if run.value("quality") is not None
    )
    average = _within_range(linear_estimate(t_interval(list(own.values()), alone), unit, alone), measure.metric)
    if partner is None or partner.cell == group.cell:
        return CellQuality(average, None, "quality: baseline" if partner is not None else UNDECIDED)
    if interval is None:
        return CellQuality(average, None, f"{UNDECIDED} (no seed in common with the baseline)")
    difference = linear_estimate(interval, unit, family)
    wording = _identical(own, by_seed(partner)) or _wording(difference, measure)
    return CellQuality(
        average, difference, FASTER_BUT_WORSE if (one.speed, wording) == (Verdict.faster, WORSE) else wording
    )


def _within_range(average: Estimate, metric: str | None) -> Estimate:
    """Return the mean of a share with its interval cut off at 0 and 1, beyond which no share lies."""
    name = (metric or "").lower()
    share = "accuracy" in name or not set(_SHARES).isdisjoint(re.split(r"[^a-z0-9]+", name))
    if average.low is None or average.high is None or not share:
        return average
    return average.model_copy(update={"low": max(0.0, average.low), "high": min(1.0, average.high)})


def by_seed(group: CellRuns) -> dict[int, float]:
    """Return the quality per seed; runs of equal seed are averaged."""
    found: dict[int, list[float]] = {}
    for run in group.measured:
        value = run.value("quality")
        if value is not None and run.seed is not None:
            found.setdefault(run.seed, []).append(value)
    return {seed: mean(values) for seed, values in found.items()}


def _identical(own: dict[int, float], other: dict[int, float]) -> str | None:
    """Training is deterministic: 3 or more seeds that all give the very same quality show that nothing changed."""
    shared = own.keys() & other.keys()
    if len(shared) >= 3 and all(own[seed] == other[seed] for seed in shared):
        return f"quality: same (identical for {len(shared)} seeds)"
    return None


def _wording(difference: Estimate, measure: QualityMeasure) -> str:
    """Non-inferiority and equivalence read off one interval (Schuirmann 1987; Piaggio et al., JAMA 2012)."""
    if difference.low is None or difference.high is None:
        return f"{UNDECIDED} at {difference.count} repeat{'s' if difference.count != 1 else ''}"
    low, high = (-difference.high, -difference.low) if measure.better == "min" else (difference.low, difference.high)
    if high < -measure.margin:
        return WORSE
    if low > measure.margin:
        return "quality: better"
    if low >= -measure.margin:
        return "quality: same" if high <= measure.margin else "quality: not worse"
    return f"{UNDECIDED} at {difference.count} repeats"
