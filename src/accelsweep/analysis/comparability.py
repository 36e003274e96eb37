"""Like for like: may two runs be compared at all? A ratio between runs that differ in something else means nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from accelsweep.analysis.intervals import FEWEST_PAIRS, Interval, variance
from accelsweep.analysis.run_results import CellRuns, RunRow
from accelsweep.config.setting import as_typed
from accelsweep.config.tasks import SIZES
from accelsweep.json_documents import canonical_json
from accelsweep.records.run_record import Doubt

_ABSENT = "none"

_Part = Callable[[RunRow], Mapping[str, str]]
"""A part of a run's fingerprint: its fields and their values."""

FOLLOWS_THE_ACCELERATOR = frozenset({"device", "driver"})
"""Fields of the hardware that must differ when the accelerator does: a CPU run has no GPU in its fingerprint."""

FOLLOWS_THE_MODEL = FOLLOWS_THE_ACCELERATOR | {"host"}
"""Fields that differ when settings name devices of different models, which stand in different nodes."""


THEIR_OWN = frozenset({"model", "data", "optimizer", "trainer", "loop", "precision", "batch_size", "seed"})
"""Keys that two versions may set differently, because their `conf/` is compared too. Keys of the timing are none."""


def difference(a: CellRuns, b: CellRuns, axes: Collection[str], across: Collection[str] = ()) -> str | None:
    """Return a sentence naming the first field, and both values, in which `a` and `b` may not differ; None if none.

    A field of the config may differ if it was swept (or lies below a swept key, as `model.width` below `model`). If a
    swept overlay may set any field (`rung`), all fields may differ. Hardware, public software versions and the user's
    own sources must be equal. `across` names fields that may differ anyway.
    """
    for field, ours, theirs in _differences(a, b, axes):
        if not _allowed(field, across):
            return (
                f"{field} differs: {as_typed(ours)} (setting {a.cell}), {as_typed(theirs)} (setting {b.cell}); "
                f"to compare them all the same, set analysis.across=[{field}]"
            )
    return None


def build_doubt(a: CellRuns, b: CellRuns) -> Doubt | None:
    """Return the doubt that the compared runs used different builds of the same version, or None."""
    if "environment" in _version_kinds(a, b):
        return None
    message, remedy = "the build tag of {} differs", "measure both with the same build of {}"
    return _doubt(lambda run: run.builds, "build_differs", message, remedy, a, b)


def source_doubt(a: CellRuns, b: CellRuns) -> Doubt | None:
    """Return the doubt that the compared runs used different sources of a package of the user's own, or None."""
    message, remedy = "the sources of {} differ", "if {} was not meant to change, measure both from one commit"
    return _doubt(lambda run: run.sources, "sources_differ", message, remedy, a, b)


def _doubt(part: _Part, code: str, message: str, remedy: str, a: CellRuns, b: CellRuns) -> Doubt | None:
    for field, ours, theirs in _varying(part, a.measured, b.measured):
        return Doubt(code=code, message=f"{message.format(field)}: {ours}, {theirs}", remedy=remedy.format(field))
    return None


def _differences(a: CellRuns, b: CellRuns, axes: Collection[str]) -> Iterator[tuple[str, Any, Any]]:
    asked = _version_kinds(a, b)
    swept = [_path(axis) for axis in axes]
    overlaid = any(_overlays(axis, a, b) for axis in swept)
    for field, ours, theirs in () if overlaid else _config_differences(_raw(a), _raw(b)):
        if not any(_below(field, axis) for axis in swept) and not (asked and field.partition(".")[0] in THEIR_OWN):
            yield field, ours, theirs
    following = _following(a, b)
    for field, ours, theirs in _varying(lambda run: run.hardware.details, a.measured, b.measured):
        if field not in following:
            yield field, ours, theirs
    if "environment" not in asked:
        yield from _varying(lambda run: run.software, a.measured, b.measured)
    if asked:
        return  # two versions are compared on purpose: their sources are what is asked about
    for field, ours, theirs in _varying(lambda run: run.sources, a.measured, b.measured):
        if _ABSENT not in (ours, theirs):  # a run without the package has another config, which was swept
            yield field, ours, theirs


def _version_kinds(a: CellRuns, b: CellRuns) -> Collection[str]:
    """Return the kinds of version that two settings of different ones have; nothing for other settings."""
    ours, theirs = (group.config.version if group.config is not None else None for group in (a, b))
    return () if ours is None or theirs is None or ours.id == theirs.id else {ours.kind, theirs.kind}


def _raw(group: CellRuns) -> dict[str, Any]:
    return {} if group.config is None else group.config.raw


def _following(a: CellRuns, b: CellRuns) -> frozenset[str]:
    """Return the fields of the hardware that may differ because the settings ask for other devices."""
    ours, theirs = a.config, b.config
    if (ours and ours.device_model) != (theirs and theirs.device_model):
        return FOLLOWS_THE_MODEL
    same = (ours and ours.accelerator) == (theirs and theirs.accelerator)
    return frozenset() if same else FOLLOWS_THE_ACCELERATOR


def _config_differences(a: Any, b: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            yield from _config_differences(a.get(key), b.get(key), f"{at}.{key}" if at else key)
    elif canonical_json(a) != canonical_json(b):
        yield at, a, b


def _varying(part: _Part, ours: Iterable[RunRow], theirs: Iterable[RunRow]) -> Iterator[tuple[str, str, str]]:
    """Yield the fields of a part of the fingerprint that are not one and the same over all runs of both sides."""
    mine, others = [[part(run) for run in side] for side in (ours, theirs)]
    for field in sorted({key for side in (mine, others) for kind in side for key in kind}):
        values = [sorted({kind.get(field) or _ABSENT for kind in side}) for side in (mine, others)]
        if len(set(values[0]) | set(values[1])) > 1:
            yield field, " and ".join(values[0]), " and ".join(values[1])


def _path(axis: str) -> str:
    """Return the config path that an axis decides: `model/encoder` decides `model.encoder`, `optimizer@slow` `slow`."""
    return axis.lstrip("+~").rpartition("@")[2].replace("/", ".")


def _overlays(axis: str, a: CellRuns, b: CellRuns) -> bool:
    """Return whether an axis is no key of the configs but a choice of files that set any key: `experiment`, `rung`."""
    return axis.partition(".")[0] not in {**_raw(a), **_raw(b)}


def _below(field: str, axis: str) -> bool:
    return field == axis or field.startswith(f"{axis}.") or axis.startswith(f"{field}.")


def _allowed(field: str, across: Collection[str]) -> bool:
    return any(field == name or field.startswith(f"{name}.") for name in across)


# Sizes that are found by trying, such as the largest batch: counts without noise, known to a bracket.

_ALIKE = 1e-24
"""A variance of logarithms below this is rounding."""


def of_sizes(group: CellRuns, partner: CellRuns, found: Interval) -> Interval:
    """Return `found`, the interval of a log ratio, widened by both brackets where the metric is a size."""
    if group.rate_metric not in SIZES:
        return found
    open_sides = [side.label for side in (group, partner) if _bracket(side) is None]
    if open_sides:
        why = f"the search ended at measure.max_batch, so {' and '.join(open_sides)} may hold more: raise it"
        return replace(found, half_width=None, reason=why)
    half = found.half_width
    if half is None and _counts_alike(group, partner):
        half = 0.0
    if half is None:
        return found
    return replace(found, half_width=half + max(_bracket(group) or 0.0, _bracket(partner) or 0.0), reason=None)


def of_size(group: CellRuns, found: Interval) -> Interval:
    """Return `found`, the interval of a cell's own log size: without width where all of its runs agree."""
    if group.rate_metric not in SIZES or found.half_width is not None:
        return found
    same = len(group.log_rates) > 1 and variance(list(group.log_rates.values())) < _ALIKE
    return replace(found, half_width=0.0, reason=None) if same else found


def _counts_alike(group: CellRuns, partner: CellRuns) -> bool:
    """Return whether the ratio is the same in each of enough common blocks."""
    ours, theirs = group.log_rates, partner.log_rates
    differences = [ours[block] - theirs[block] for block in ours if block in theirs]
    return len(differences) >= FEWEST_PAIRS and variance(differences) < _ALIKE


def _bracket(group: CellRuns) -> float | None:
    """Return how far above the largest size that fits the truth may lie, as a logarithm; None where nothing bounds it.

    The smallest size that does not fit is one more than the largest that the truth can be.
    """
    widths = []
    for run in group.rated:
        fits, too_large = run.value("largest_batch"), run.value("too_large_batch")
        if fits is None or too_large is None:
            return None
        widths.append(math.log(max(too_large - 1.0, fits) / fits))
    return max(widths, default=None)
