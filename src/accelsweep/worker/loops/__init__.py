"""Training loops: Lightning's, and a raw one to compare it with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsweep.worker.loops.loop import Loop, TrainingLength
    from accelsweep.worker.run_spec import RunSpec


def make_loop(spec: RunSpec, length: TrainingLength | None = None) -> Loop:
    """Return the training loop that the config asks for. Raises Unsupported if this machine cannot run it.

    `length` bounds the phase; None derives it from the config's numbers of steps.
    """
    if spec.config.loop == "raw":
        from accelsweep.worker.loops.raw import RawLoop

        return RawLoop(spec)
    from accelsweep.worker.loops.lightning import LightningLoop

    return LightningLoop(spec, length)
