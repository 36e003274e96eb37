"""Checks whether two settings may be compared, and widens intervals for sizes that a search has only bracketed.

A ratio between runs that differ in anything besides the swept axes is meaningless, so it is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from accelsweep.analysis.intervals import MIN_PAIRS, Interval, variance
from accelsweep.analysis.run_results import RunRow, SettingRuns
from accelsweep.config.setting import override_value
from accelsweep.plain_json import canonical_json
from accelsweep.results import Doubt
from accelsweep.run_config import ENTRY_AXES
from accelsweep.tasks import SIZE_METRICS

_ABSENT = "none"

_Facts = Callable[[RunRow], Mapping[str, str]]
"""Returns part of a run's fingerprint as a mapping from field names to values."""

ACCELERATOR_FIELDS = frozenset({"device", "driver"})
"""Hardware fields that necessarily differ between accelerators: a CPU run has no GPU in its fingerprint."""

MODEL_FIELDS = ACCELERATOR_FIELDS | {"host"}
"""Hardware fields that may differ between settings on different device models, because these are in different nodes."""

VERSION_KEYS = frozenset({"model", "data", "optimizer", "trainer", "loop", "precision", "batch_size", "seed"})
"""Config keys that two compared versions may set differently, because `conf/` is part of each version.

Keys that control the timed window are excluded.
"""

_ROUNDING = 1e-24
"""A variance of logarithms below this is treated as rounding error."""


def incompatibility(a: SettingRuns, b: SettingRuns, axes: Collection[str], across: Collection[str] = ()) -> str | None:
    """Describe the first field that differs between `a` and `b` but must not; None if they are comparable.

    The sentence includes both values. Config fields may differ if they were swept or are nested under a swept key
    (`model.width` under `model`). If an overlay that may set any field (`experiment`) was swept, all of them may
    differ. Hardware, public software versions and the user's own sources must be identical. `across` lists further
    fields that may differ.
    """
    for field, ours, theirs in _differences(a, b, axes):
        if not any(field == name or field.startswith(f"{name}.") for name in across):
            return (
                f"{field} differs: {override_value(ours)} (setting {a.setting}), {override_value(theirs)} "
                f"(setting {b.setting}); to compare them anyway, set analysis.across=[{field}]"
            )
    return None


def build_doubt(a: SettingRuns, b: SettingRuns) -> Doubt | None:
    """Return a doubt if the compared runs used different builds of the same software version."""
    if "environment" in _compared_kinds(a, b):
        return None
    for package, ours, theirs in _varying(lambda run: run.builds, a.measured, b.measured):
        message = f"the build tag of {package} differs: {ours}, {theirs}"
        return Doubt(code="build_differs", message=message, remedy=f"measure both with the same build of {package}")
    return None


def source_doubt(a: SettingRuns, b: SettingRuns) -> Doubt | None:
    """Return a doubt if the compared runs used different sources of one of the user's own packages."""
    for package, ours, theirs in _varying(lambda run: run.sources, a.measured, b.measured):
        message = f"the sources of {package} differ: {ours}, {theirs}"
        remedy = f"if {package} was not meant to change, measure both at the same commit"
        return Doubt(code="sources_differ", message=message, remedy=remedy)
    return None


def _differences(a: SettingRuns, b: SettingRuns, axes: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
    compared = _compared_kinds(a, b)
    # `model/encoder` sets `model.encoder`, and `optimizer@slow` sets `slow`
    swept = [axis.lstrip("+~").rpartition("@")[2].replace("/", ".") for axis in axes]
    ours, theirs = ({} if group.config is None else group.config.raw for group in (a, b))
    entry = "entry" in ours and "entry" in theirs
    if all(axis.partition(".")[0] in (*ours, *theirs) for axis in swept):  # other axes are overlays, which set any key
        for field, own, other in _config_differences(ours, theirs):
            if entry and (field in ENTRY_AXES or field.startswith("entry.")):
                continue  # they follow from the arguments, which are compared below
            is_swept = any(
                field == axis or field.startswith(f"{axis}.") or axis.startswith(f"{field}.") for axis in swept
            )
            if not is_swept and not (compared and field.partition(".")[0] in VERSION_KEYS):
                yield field, own, other
    yield from _entry_differences(a, b, axes)
    chosen = _fields_of_the_device(a, b)
    for field, own, other in _varying(lambda run: run.hardware.details, a.measured, b.measured):
        if field not in chosen:
            yield field, own, other
    if "environment" not in compared:
        yield from _varying(lambda run: run.software, a.measured, b.measured)
    if not compared:  # compared versions are expected to differ in their sources
        for field, own, other in _varying(lambda run: run.sources, a.measured, b.measured):
            if _ABSENT not in (own, other):  # a package is only absent because of a swept config key
                yield field, own, other


def _entry_differences(a: SettingRuns, b: SettingRuns, axes: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs in how the user's own script was run, apart from the swept axes."""
    ours, theirs = (None if group.config is None else group.config.entry for group in (a, b))
    if ours is None or theirs is None:
        return
    own, other = ({"command": list(entry.command), **entry.fixed_arguments(axes)} for entry in (ours, theirs))
    yield from _config_differences(own, other, "entry")


def _compared_kinds(a: SettingRuns, b: SettingRuns) -> Collection[str]:
    """Return the kinds of the two settings' versions if the versions differ, otherwise an empty collection."""
    ours, theirs = (group.config.version if group.config is not None else None for group in (a, b))
    return () if ours is None or theirs is None or ours.id == theirs.id else {ours.kind, theirs.kind}


def _fields_of_the_device(a: SettingRuns, b: SettingRuns) -> frozenset[str]:
    """Return the hardware fields that may differ because the settings request different devices."""
    ours, theirs = a.config, b.config
    if (ours and ours.device_model) != (theirs and theirs.device_model):
        return MODEL_FIELDS
    same = (ours and ours.accelerator) == (theirs and theirs.accelerator)
    return frozenset() if same else ACCELERATOR_FIELDS


def _config_differences(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if path and repr(a) == repr(b):  # most parts of most configs
            return
        for key in sorted(a.keys() | b.keys()):
            yield from _config_differences(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif not _are_equal(a, b):
        yield path, a, b


def _are_equal(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal; 1, 1.0 and true are not. Nearly all of them are no lists."""
    if isinstance(a, list | tuple | dict) and isinstance(b, list | tuple | dict):
        return canonical_json(a) == canonical_json(b)
    return type(a) is type(b) and bool(a == b)


def _varying(facts: _Facts, ours: Iterable[RunRow], theirs: Iterable[RunRow]) -> Iterator[tuple[str, str, str]]:
    """Yield the fingerprint fields that vary across the runs of both sides, with each side's values."""
    sides = [[facts(run) for run in side] for side in (ours, theirs)]
    if len({id(found) for side in sides for found in side}) == 1:  # `collect` shares equal parts of records
        return
    for field in sorted({key for side in sides for run in side for key in run}):
        own, other = (sorted({run.get(field) or _ABSENT for run in side}) for side in sides)
        if len({*own, *other}) > 1:
            yield field, " and ".join(own), " and ".join(other)


# Sizes found by a search, such as the largest batch size, are noise-free counts, known only to within a bracket.


def with_search_brackets(group: SettingRuns, partner: SettingRuns, interval: Interval) -> Interval:
    """Widen the interval for a log ratio by the larger of the two searches' brackets if the metric is a size."""
    if group.rate_metric not in SIZE_METRICS:
        return interval
    open_sides = [side.label for side in (group, partner) if _bracket(side) is None]
    if open_sides:
        why = f"the search ended at measure.max_batch, so {' and '.join(open_sides)} may fit larger batches: raise it"
        return replace(interval, half_width=None, reason=why)
    half_width = interval.half_width
    if half_width is None:
        ours, theirs = group.log_rates, partner.log_rates
        differences = [ours[block] - theirs[block] for block in ours if block in theirs]
        if len(differences) < MIN_PAIRS or variance(differences) >= _ROUNDING:
            return interval
        half_width = 0.0
    bracket = max(_bracket(group) or 0.0, _bracket(partner) or 0.0)
    return replace(interval, half_width=half_width + bracket, reason=None)


def with_constant_size(group: SettingRuns, interval: Interval) -> Interval:
    """Return the interval for the logarithm of a setting's own size, with zero width if all of its runs agree."""
    if group.rate_metric not in SIZE_METRICS or interval.half_width is not None:
        return interval
    constant = len(group.log_rates) > 1 and variance(list(group.log_rates.values())) < _ROUNDING
    return replace(interval, half_width=0.0, reason=None) if constant else interval


def _bracket(group: SettingRuns) -> float | None:
    """Return how far, on the log scale, the true size may exceed the largest one found to fit; None if unbounded.

    The true size is at most one less than the smallest size found not to fit.
    """
    widths = []
    for run in group.rated:
        fits, too_large = run.value("largest_batch"), run.value("too_large_batch")
        if fits is None or too_large is None:
            return None
        widths.append(math.log(max(too_large - 1.0, fits) / fits))
    return max(widths, default=None)
