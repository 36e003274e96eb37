"""The choice of a run's training loop."""

from __future__ import annotations

from accelsweep.worker.loops.loop import Length, Loop
from accelsweep.worker.run_spec import RunSpec


def make_loop(spec: RunSpec, length: Length | None = None) -> Loop:
    """Return the loop that the config asks for. Raises Unsupported where this machine cannot run it.

    `length` is the most that a phase trains whose end is no number of steps in the config.
    """
    if spec.config.loop == "raw":
        from accelsweep.worker.loops.raw import RawLoop

        return RawLoop(spec)
    from accelsweep.worker.loops.lightning import LightningLoop

    return LightningLoop(spec, length)
