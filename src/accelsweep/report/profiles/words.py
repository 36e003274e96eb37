"""A profile in words: what was looked at, the time of operators and modules, and what two profiles differ in."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.core.recorded.profiles import ModuleTime, OperatorTime, PartDifference, ProfileFinding
from accelsweep.report import units as fmt

TOLD = 5
"""So many differences stand in a sentence."""


def circumstances(profile: ProfileFinding) -> str:
    """Return what was looked at, in words."""
    ranks = "" if profile.ranks == 1 else f", rank 0 of {profile.ranks}"
    times = "times of the host, all threads" if not _on_device(profile) else f"times on the {profile.device} device"
    return (
        f"{fmt.count(profile.steps, 'step')} after {profile.warmup_steps} that do not count{ranks}, "
        f"on {profile.device_name}, {profile.started_at[:16].replace('T', ' ')} UTC; {times}"
    )


def _on_device(profile: ProfileFinding) -> bool:
    return any(row.device_seconds is not None for row in profile.operators)


def operator_words(row: OperatorTime) -> str:
    """Return an operator with its time in a step."""
    return f"{row.words} {fmt.number(row.seconds, 's')}"


def module_words(row: ModuleTime) -> str:
    """Return a module with its class, its direction and its time in a step."""
    form = f" ({row.form})" if row.form else ""
    return f"{row.words}{form} {fmt.number(row.seconds, 's')}"


def difference_words(differences: Sequence[PartDifference]) -> str:
    """Return the largest differences as `convolution backward 3.1 ms less, copy 0.4 ms more`."""
    if not differences:
        return "no part differs by more than 0.5 % of the step"
    return ", ".join(_difference(one) for one in differences[:TOLD])


def _difference(one: PartDifference) -> str:
    gap = one.after - one.before
    return f"{one.name} {fmt.number(abs(gap), 's')} {'more' if gap > 0 else 'less'}"
