"""The noise that a sweep's runs have shown so far, for the plan of its further blocks."""

from __future__ import annotations

from collections.abc import Iterable

from accelsweep.analyse.collected.runs import RunRow, group, in_order
from accelsweep.analyse.findings.against_baseline import Rules, against_baseline, noise_against_baseline
from accelsweep.core.planned.plans import Manifest


def noise_so_far(runs: Iterable[RunRow], manifest: Manifest) -> float | None:
    """Return the standard deviation of one run's log rate, by which the report tells what it can see; or None.

    `runs` are those that `collect` found. None where no setting shares two blocks with its baseline.
    """
    groups = group(manifest, in_order(runs))
    return noise_against_baseline(groups, against_baseline(groups, manifest, Rules.of(manifest, groups)))
