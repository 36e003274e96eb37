"""Memory as a share of what the machine or the device has, where the inventory states that."""

from __future__ import annotations

from collections.abc import Mapping

from accelsweep.analyse.statistics.intervals import significant
from accelsweep.core.findings.numbers import Summary
from accelsweep.core.recorded.metrics import MEMORY_METRICS
from accelsweep.core.recorded.record import Effective
from accelsweep.core.sites.site import Site


def memory_share(metrics: Mapping[str, Summary], effective: Effective | None, site: Site) -> float | None:
    """Return the memory that a setting took over that of one device (of the machine, on a CPU), or None."""
    used = next((one.median for name in MEMORY_METRICS if (one := metrics.get(name)) and one.median is not None), None)
    if used is None or effective is None:
        return None
    models = effective.device_names
    fitting = [
        one for one in site.devices if one.accelerator == effective.accelerator and (not models or one.model in models)
    ]
    if len(fitting) != 1 or not fitting[0].memory_bytes:
        return None
    return significant(used / fitting[0].memory_bytes)
