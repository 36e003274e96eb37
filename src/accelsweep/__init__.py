"""Measure whether a GPU, a bigger batch or a lower precision pays off for this model, here.

The road is plan -> run -> record -> collect -> analyse -> report; each room of the package is one step of it. The
command line is the first way to use it. These names are the second, for notebooks and scripts:

* `accelsweep.open(...)` reads sweeps and archives, and returns an `OpenedSweep`.
* `accelsweep.plan([...])` previews a sweep, and returns a `SweepPlan`.
* `accelsweep.run([...])` measures a sweep, and returns an `OpenedSweep`.

They are imported when they are first used, so that `import accelsweep` is quick. None of them imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accelsweep.errors import AccelsweepError, InputError
from accelsweep.installation import __version__

if TYPE_CHECKING:
    from accelsweep.api import OpenedSweep, SweepPlan, plan, run
    from accelsweep.api import open_sweep as open  # noqa: A004 - read as accelsweep.open
else:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _PLACES[name].partition(":")
        return getattr(import_module(module), attribute) if attribute else import_module(module)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_PLACES})


_PLACES = {
    "OpenedSweep": "accelsweep.api:OpenedSweep",
    "SweepPlan": "accelsweep.api:SweepPlan",
    "open": "accelsweep.api:open_sweep",
    "plan": "accelsweep.plan",  # a room, and a word of the public names: the room can be called
    "run": "accelsweep.api:run",
}

__all__ = ["AccelsweepError", "InputError", "OpenedSweep", "SweepPlan", "__version__", "open", "plan", "run"]
