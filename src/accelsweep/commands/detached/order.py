"""The order to a detached head, in a file for its owner's eyes only.

Arguments go by this file, not by a command line. So they arrive exactly, and no list of processes and no job shows the
addresses of notices, which hold secrets. Nor does a job show the user's secrets, such as the password for MLflow.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from accelsweep.config.site import Site
from accelsweep.driver.run_sweep import Request, seconds_of
from accelsweep.errors import DamagedFile
from accelsweep.json_documents import Document
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest


class HeadOrder(Document):
    """The arguments of a command. `site` is where the sweep's jobs go, and where on Slurm its heads do.

    `sweeps` are those that the head drives. `revision` is the plan in which `--add-repeats` has done its part.
    `starts` counts the heads that took the order up. `secrets` are variables of the user's that its job does not get
    from Slurm, which would store them, and show them to its staff.
    """

    kind: ClassVar[str] = "order"
    mode: ClassVar[int] = 0o600

    request: Request
    site: Site
    sweeps: tuple[str, ...]
    revision: int
    starts: int = 0
    secrets: dict[str, str] = Field(default_factory=dict)

    def begun(self, folder: SweepFolder) -> HeadOrder:
        """Return the order as the next head takes it up: what is in the plan already is not asked for again."""
        request = replace(self.request, add_repeats=0) if self._in_plan(folder) else self.request
        return self.model_copy(update={"request": request, "starts": self.starts + 1})

    def _in_plan(self, folder: SweepFolder) -> bool:
        try:
            return Manifest.read(folder.manifest).revision >= self.revision
        except (FileNotFoundError, DamagedFile):
            return False

    def later(self, began: float) -> HeadOrder:
        """Return the order for another head, after one that `began` then, on the monotonic clock."""
        budget = seconds_of(self.request.time_budget)
        if budget is None:
            return self
        left = max(1.0, budget - (time.monotonic() - began))
        return self.model_copy(update={"request": replace(self.request, time_budget=f"{left:.0f}s")})
