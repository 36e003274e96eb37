"""Which loop trains a run."""

from __future__ import annotations

from accelsweep.core.errors import InputError
from accelsweep.rank.loops.loop import Loop
from accelsweep.rank.spec import RunSpec


def make_loop(spec: RunSpec) -> Loop:
    """Return the loop that the config asks for. Raises Unsupported where this machine cannot run it."""
    name = spec.config["loop"]
    if name == "lightning":
        from accelsweep.rank.loops.lightning import LightningLoop

        return LightningLoop(spec)
    if name == "raw":
        from accelsweep.rank.loops.raw_loop import RawLoop

        return RawLoop(spec)
    raise InputError(f"loop={name!r} is not known: use lightning or raw")
