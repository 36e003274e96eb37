"""Training loops: Lightning's, those of the user's own script, and a raw loop for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsweep.worker.loops.loop import Loop, TrainingLength
    from accelsweep.worker.run_spec import RunSpec


def make_loop(spec: RunSpec, length: TrainingLength | None = None) -> Loop:
    """Return the training loop selected by the config. Raises Unsupported if this machine cannot run it.

    `length` bounds the phase; if it is None, the bound is derived from the step counts in the config.
    """
    if spec.config.loop == "raw":
        from accelsweep.worker.loops.raw import RawLoop

        return RawLoop(spec)
    if spec.config.loop == "entry":
        from accelsweep.worker.loops.entry_point import running_loop

        return running_loop()
    from accelsweep.worker.loops.lightning import LightningLoop

    return LightningLoop(spec, length)
