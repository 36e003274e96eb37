"""The time of a step by part, and the bottleneck that follows from it. One rule serves a run and a cell.

Shares are of the time of a step and add up to 1. The rule compares five of them and names the largest. Its evidence
stands beside it, so that a reader can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping

from accelsweep.base.documents import Frozen

PARTS = ("data_wait", "host_to_device", "forward", "backward", "optimizer", "communication", "overhead")
"""The parts of a step, in the order in which they happen; `overhead` is the loop's own time between them."""

COMPUTE = ("forward", "backward", "optimizer")

BEHIND = 0.5
"""An asynchronous device that is behind the host at the end of fewer steps than this share waits for the host."""

SUBSTANTIAL = 0.3
"""A second part that takes this share of the step is named in the verdict too: without it the first reads as all."""

MAJORITY = 0.5
"""A bottleneck that takes a smaller share of the step is said to take no majority of it."""


class Breakdown(Frozen):
    """The parts of a step: seconds per step and shares by `PARTS`, averaged over `steps` steps and all ranks.

    `device_behind` is the share of steps at whose end the device had not yet finished the step before. It is None where
    the host and the device are one. `communication` is absent from `shares` where it could not be told apart.
    """

    steps: int
    step_seconds: float
    shares: dict[str, float]
    device_behind: float | None
    verdict: str
    evidence: str


def bottleneck(shares: Mapping[str, float], device_behind: float | None = None) -> tuple[str, str]:
    """Return the verdict on these shares and its evidence in words.

    The verdict is `input-bound`, `transfer-bound`, `communication-bound`, `compute-bound` or `overhead-bound`. The
    largest part of the step decides; forward, backward and optimizer count together as compute. Compute on an
    asynchronous device that waits for the host (`BEHIND`) is `overhead-bound`: its time is that of launching the work.
    A second part that is `SUBSTANTIAL` is named after the first: `compute-bound and input-bound`. Where communication
    could not be told apart, it is in compute, and the verdict on that says `compute-bound or communication-bound`.
    """
    told_apart = "communication" in shares
    computing = "compute-bound" if told_apart else "compute-bound or communication-bound"
    compute = "forward, backward and optimizer" + ("" if told_apart else ", any exchange between ranks included,")
    parts = {
        computing: (compute, sum(shares.get(part, 0.0) for part in COMPUTE)),
        "input-bound": ("waiting for data", shares.get("data_wait", 0.0)),
        "transfer-bound": ("moving batches to the device", shares.get("host_to_device", 0.0)),
        "communication-bound": ("exchanging gradients", shares.get("communication", 0.0)),
        "overhead-bound": ("the loop around the model", shares.get("overhead", 0.0)),
    }
    verdict, rest = sorted(parts, key=lambda name: -parts[name][1])[:2]
    words, share = parts[verdict]
    evidence = f"{words} took {_percent(share)} of a step"
    if verdict == computing and device_behind is not None and device_behind < BEHIND:
        behind = f"the device was behind the host at the end of only {_percent(device_behind)} of the steps"
        return "overhead-bound", f"{evidence}, but {behind}, so it waits for work to be launched"
    if share < MAJORITY:
        evidence += ", less than half of it"
    both = f"{verdict} and {rest}" if parts[rest][1] >= SUBSTANTIAL else verdict
    return both, f"{evidence}; next came {parts[rest][0]} with {_percent(parts[rest][1])}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"
