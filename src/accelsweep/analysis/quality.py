"""Tests whether a setting's quality is as good as the baseline's, paired by seed, with a non-inferiority margin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from accelsweep.analysis.baseline_comparison import Comparison, make_pair
from accelsweep.analysis.intervals import Family, Interval, linear_estimate, paired_interval, t_interval
from accelsweep.analysis.run_results import SettingRuns
from accelsweep.analysis.simultaneous_intervals import simultaneous_intervals
from accelsweep.records.estimates import Estimate, Verdict

UNDECIDED = "quality: undecided"

WORSE = "quality: worse"

NOT_MEASURED = "quality: not measured"

FASTER_BUT_WORSE = "faster, but worse"

_SHARES = ("acc", "f1", "auc", "auroc", "precision", "recall", "dice", "iou", "jaccard", "specificity")
"""Words that identify metrics with a range of 0 to 1: torchmetrics' names and common abbreviations."""


@dataclass(frozen=True)
class SettingQuality:
    """A setting's quality: the mean over its repeats, the difference from the baseline, and the verdict's wording."""

    mean: Estimate | None
    difference: Estimate | None
    verdict: str


@dataclass(frozen=True)
class QualityMeasure:
    """The quality metric: its name, whether `max` or `min` is `better`, and the margin for negligible differences.

    `samples` is the number of training samples before validation, if it is fixed.
    """

    metric: str | None
    better: str | None
    margin: float
    samples: int | None = None


def is_not_worse(verdict: str) -> bool:
    """Return whether a quality verdict rules out a loss beyond the margin."""
    return verdict.startswith(("quality: same", "quality: not worse", "quality: better"))


def is_worse(verdict: str) -> bool:
    """Return whether a quality verdict states a loss beyond the margin."""
    return verdict in (WORSE, FASTER_BUT_WORSE)


DEFAULT_MARGIN = 0.01
"""The default margin: absolute for values within [0, 1], else relative to the median of their magnitudes."""


def quality_measure(groups: Sequence[SettingRuns], margin: float | None) -> QualityMeasure:
    """Return the quality metric set in the settings' configs (`measure.quality_metric`, `measure.quality_better`).

    If `margin` is None, it depends on the values (`DEFAULT_MARGIN`).
    """
    measure = next((group.config.measure for group in groups if group.config is not None), None)
    if margin is None:
        values = [value for group in groups for value in group.qualities.values()]
        within = all(0.0 <= value <= 1.0 for value in values)
        margin = DEFAULT_MARGIN * (1.0 if within else median(map(abs, values)))
    if measure is None or measure.quality_metric is None:
        return QualityMeasure(None, None, margin)
    return QualityMeasure(measure.quality_metric, measure.quality_better, margin, measure.quality_samples)


def compare_quality(
    groups: Sequence[SettingRuns], comparisons: Sequence[Comparison], family: Family, measure: QualityMeasure
) -> list[SettingQuality]:
    """Return each setting's quality, compared with that of the partner used for its rate.

    The differences are paired by seed; their variances are pooled separately for each kind of hardware.
    """
    pairs = []
    for group, comparison in zip(groups, comparisons, strict=True):
        partner, pair = comparison.partner, None
        if partner is not None and partner.setting != group.setting:
            own, other = group.qualities, partner.qualities
            pair = make_pair(group, partner, own, other) if own.keys() & other.keys() else None
        pairs.append(pair)
    intervals = iter(simultaneous_intervals([pair for pair in pairs if pair is not None], family, paired_interval))
    return [
        _quality(group, comparison, None if pair is None else next(intervals), family, measure)
        for group, comparison, pair in zip(groups, comparisons, pairs, strict=True)
    ]


def _quality(
    group: SettingRuns, comparison: Comparison, interval: Interval | None, family: Family, measure: QualityMeasure
) -> SettingQuality:
    own, partner = group.qualities, comparison.partner
    if not own:
        return SettingQuality(None, None, NOT_MEASURED)
    unit = measure.metric or next(
        run.metrics["quality"].unit for run in group.measured if run.value("quality") is not None
    )
    single = Family(1, family.confidence)
    average = _clip_share(linear_estimate(t_interval(list(own.values()), single), unit, single), measure.metric)
    if partner is None or partner.setting == group.setting:
        return SettingQuality(average, None, "quality: baseline" if partner is not None else UNDECIDED)
    if interval is None:
        return SettingQuality(average, None, f"{UNDECIDED} (no seed in common with the baseline)")
    difference = linear_estimate(interval, unit, family)
    other = partner.qualities
    shared = own.keys() & other.keys()
    if len(shared) >= 3 and all(own[seed] == other[seed] for seed in shared):  # deterministic training, unchanged
        return SettingQuality(average, difference, f"quality: same (identical for {len(shared)} seeds)")
    wording = _wording(difference, measure)
    if comparison.verdict is Verdict.faster and wording == WORSE:
        wording = FASTER_BUT_WORSE
    return SettingQuality(average, difference, wording)


def is_share(metric: str | None) -> bool:
    """Return whether a quality metric ranges from 0 to 1, judging by its name."""
    name = (metric or "").lower()
    return "accuracy" in name or not set(_SHARES).isdisjoint(re.split(r"[^a-z0-9]+", name))


def _clip_share(average: Estimate, metric: str | None) -> Estimate:
    """Clip the interval to [0, 1] if the metric has that range."""
    if average.low is None or average.high is None or not is_share(metric):
        return average
    return average.model_copy(update={"low": max(0.0, average.low), "high": min(1.0, average.high)})


def _wording(difference: Estimate, measure: QualityMeasure) -> str:
    """Return the wording of the verdict on non-inferiority and equivalence.

    Sources: Schuirmann 1987; Piaggio et al., JAMA 2012.
    """
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
