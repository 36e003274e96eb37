"""The doubt about a setting that missed the latency bound at every load in some of its repeats."""

from __future__ import annotations

from collections.abc import Iterator

from accelsweep.analysis.run_results import SettingRuns
from accelsweep.results import Doubt


def setting_doubts(group: SettingRuns) -> Iterator[Doubt]:
    """Yield a doubt if only some of the measured repeats met the latency bound."""
    rated, measured = len(group.rated), len(group.measured)
    if group.rate_metric == "queries_per_second" and 0 < rated < measured:
        yield Doubt(
            code="load_refused",
            message=f"{rated} of {measured} measured repeats met the latency bound at some load; the rate is "
            "based only on these",
            remedy="raise serving.latency_ms, or report that the setting often exceeds the bound at every load",
        )
