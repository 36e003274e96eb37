"""The ranges of the numbers that steer a sweep."""

from __future__ import annotations

from collections.abc import Callable

from accelsweep.core.errors import InputError
from accelsweep.core.plans import Settings, Site
from accelsweep.plan.blocks import slurm


def refuse_out_of_range(settings: Settings, site: Site, file_of: Callable[[str], str]) -> None:
    """Raise InputError that names the first plan-level number outside of its range, the range and the file."""
    limits, analysis, block = settings.limits, settings.analysis, settings.block
    bounds = {
        "repeats": (settings.repeats, settings.repeats >= 1, "at least 1"),
        "limits.run_seconds": (limits.run_seconds, limits.run_seconds > 0, "more than 0"),
        "limits.block_seconds": (
            limits.block_seconds,
            limits.block_seconds is None or limits.block_seconds > 0,
            "more than 0, or null for no bound",
        ),
        "limits.stop_grace_seconds": (limits.stop_grace_seconds, limits.stop_grace_seconds >= 0, "at least 0"),
        "limits.retries": (limits.retries, limits.retries >= 0, "at least 0"),
        "limits.log_bytes": (limits.log_bytes, limits.log_bytes > 0, "more than 0"),
        "limits.free_disk_bytes": (limits.free_disk_bytes, limits.free_disk_bytes >= 0, "at least 0"),
        "analysis.threshold": (analysis.threshold, 0 <= analysis.threshold < 1, "at least 0 and less than 1"),
        "analysis.confidence": (analysis.confidence, 0 < analysis.confidence < 1, "between 0 and 1"),
        "analysis.quality_margin": (analysis.quality_margin, analysis.quality_margin >= 0, "at least 0"),
        "block.size": (block.size, block.size is None or block.size >= 1, "at least 1, or null for no bound"),
        "block.minutes": (
            block.minutes,
            block.minutes is None or block.minutes > 0,
            "more than 0, or null for no bound",
        ),
        "site.nodes": (site.nodes, site.nodes >= 1, "at least 1"),
        **slurm.bounds(site),
    }
    for key, (value, allowed, bound) in bounds.items():
        if not allowed:
            raise InputError(f"{key}={value}: must be {bound}; look in {file_of(key)}")
