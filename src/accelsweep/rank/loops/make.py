"""The choice of a run's training loop."""

from __future__ import annotations

from accelsweep.rank.loops.loop import Loop
from accelsweep.rank.spec import RunSpec


def make_loop(spec: RunSpec) -> Loop:
    """Return the loop that the config asks for. Raises Unsupported where this machine cannot run it."""
    if spec.config.loop == "raw":
        from accelsweep.rank.loops.raw_loop import RawLoop

        return RawLoop(spec)
    from accelsweep.rank.loops.lightning import LightningLoop

    return LightningLoop(spec)
