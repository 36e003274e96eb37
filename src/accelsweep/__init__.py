"""Measure whether a GPU, a bigger batch or a lower precision pays off for your model on your machine.

A sweep goes through plan -> run -> record -> collect -> analyse -> report. It is driven from the command line, or from
notebooks and scripts:

* `accelsweep.plan([...])` previews a sweep and returns a `SweepPlan`.
* `accelsweep.run([...])` measures a sweep and returns an `OpenedSweep`.
* `accelsweep.open(...)` reads sweeps and exported files and returns an `OpenedSweep`.

A training script can report what cannot be seen from outside, with `steps`, `samples` and `quality`. They do nothing
unless the script is measured.

These names are imported on first use, so that `import accelsweep` is quick. None of them imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from accelsweep.errors import AccelsweepError, InputError
from accelsweep.installation import __version__

if TYPE_CHECKING:
    from accelsweep.api import OpenedSweep, SweepPlan, plan, run
    from accelsweep.api import open_sweep as open  # noqa: A004 - read as accelsweep.open
    from accelsweep.reporting import quality, samples, steps
else:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name not in _LAZY_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _LAZY_NAMES[name].partition(":")
        value = globals()[name] = getattr(import_module(module), attribute)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_LAZY_NAMES})


_LAZY_NAMES = {
    "OpenedSweep": "accelsweep.api:OpenedSweep",
    "SweepPlan": "accelsweep.api:SweepPlan",
    "open": "accelsweep.api:open_sweep",
    "plan": "accelsweep.api:plan",
    "quality": "accelsweep.reporting:quality",
    "run": "accelsweep.api:run",
    "samples": "accelsweep.reporting:samples",
    "steps": "accelsweep.reporting:steps",
}

__all__ = [
    "AccelsweepError",
    "InputError",
    "OpenedSweep",
    "SweepPlan",
    "__version__",
    "open",
    "plan",
    "quality",
    "run",
    "samples",
    "steps",
]
