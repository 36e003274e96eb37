"""The run's rates from the times of its ranks: all ranks' samples over the slowest rank's seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.core.recorded.record import Metric
from accelsweep.measure.stalls import RankStalls
from accelsweep.measure.window import RankWindow

BEYOND = 10
"""With fewer values beyond a percentile, one hiccup would decide the figure: a 99th needs 1000 steps."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return the `share`-quantile of `values` by linear interpolation (Hyndman and Fan's type 7)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def rate_metrics(
    window: RankWindow, seconds: Sequence[float], samples: Sequence[int], stalls: Sequence[RankStalls] = ()
) -> dict[str, Metric]:
    """Return the run's rate and step times.

    `window` is rank 0's; `seconds`, `samples` and `stalls` hold one value per rank for the same steps. The slowest rank
    decides. Without `stalls` there was none.
    """
    slowest, total = max(seconds), sum(samples)
    steps = window.window_step_seconds
    clock = {"provenance": "clock"}
    return {
        "samples_per_second": Metric(value=total / slowest, unit="1/s", scope="all ranks", **clock),
        "step_seconds": Metric(value=slowest / len(steps), unit="s", scope="slowest rank", **clock),
        "samples_per_second_without_stalls": _without(stalls, seconds, total),
        "stall_seconds": Metric(
            value=max((rank.seconds for rank in stalls), default=0.0), unit="s", scope="worst rank", **clock
        ),
        "window_seconds": Metric(value=slowest, unit="s", scope="slowest rank", **clock),
        "window_steps": Metric(value=float(len(steps)), unit="steps", scope="one rank"),
        "window_samples": Metric(value=float(total), unit="samples", scope="all ranks"),
        "first_step_seconds": Metric(value=window.first_step_seconds, unit="s", scope="rank 0", **clock),
        "step_seconds_p50": Metric(value=quantile(steps, 0.5), unit="s", scope="rank 0"),
        "step_seconds_p99": percentile(steps, 0.99, "steps", "rank 0"),
        "rank_skew_seconds": _skew(seconds),
    }


def _without(stalls: Sequence[RankStalls], seconds: Sequence[float], samples: int) -> Metric:
    if not any(rank.count for rank in stalls):
        return Metric(value=None, unit="1/s", reason="no step took far longer than the others", scope="all ranks")
    slowest = max(whole - rank.seconds for whole, rank in zip(seconds, stalls, strict=True))
    return Metric(value=samples / slowest, unit="1/s", scope="all ranks", provenance="clock")


def percentile(seconds: Sequence[float], share: float, what: str, scope: str) -> Metric:
    """Return the `share`-quantile of the seconds of `what` (steps, queries), withheld where too few lie beyond it."""
    needed = round(BEYOND / (1.0 - share))
    if len(seconds) < needed:
        wanted = f"{100 * share:g}th percentile needs {needed} (measure.min_steps)"
        reason = f"withheld: {len(seconds)} {what}, and a {wanted}"
        return Metric(value=None, unit="s", reason=reason, scope=scope)
    return Metric(value=quantile(seconds, share), unit="s", scope=scope)


def _skew(seconds: Sequence[float]) -> Metric:
    if len(seconds) == 1:
        return Metric(value=None, unit="s", reason="one rank has no skew", scope="all ranks")
    return Metric(value=max(seconds) - min(seconds), unit="s", scope="all ranks", provenance="clock")
