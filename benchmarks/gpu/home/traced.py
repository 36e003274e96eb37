"""A model whose steps torch's profiler traces, to find calls that wait for the device in the timed window."""

import json
from pathlib import Path
from typing import Any

from torch.profiler import profile, record_function

from accelsweep.workloads.image_models import MLP

FIRST, LAST = 30, 50
"""The first and the last traced training step; the window must be open for all of them."""
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy")
"""Calls of the CUDA runtime that hold the host until the device is done. cudaMemcpyAsync and others only queue."""


class TracedMLP(MLP):
    """The shipped MLP, with its steps counted and one stretch of them traced."""

    def __init__(self, trace: str, **arguments: Any) -> None:
        """`trace` is the file that the names and counts of the runtime's calls are written to."""
        super().__init__(**arguments)
        self._file, self._steps = Path(trace), 0
        self._counted = (0, 0)
        self._profile: profile | None = None  # made when it is needed: a module may be copied before it trains

    def training_step(self, *arguments: Any) -> Any:
        """Open the trace at one step and close it at a later one; both lie outside of the counted steps."""
        self._steps += 1
        if self._steps in (FIRST, LAST) and self.device.type == "simulated":
            self._count()
        elif self._steps == FIRST:
            self._profile = profile()
            self._profile.start()
        elif self._steps == LAST and self._profile is not None:
            self._profile.stop()
            self._write(self._profile)
        with record_function("acceptance_step"):
            return super().training_step(*arguments)

    def _write(self, traced: profile) -> None:
        events = list(traced.events() or ())
        steps = [event.time_range for event in events if event.name == "acceptance_step"]
        first, last = min(step.start for step in steps), max(step.end for step in steps)
        inside = [event.name for event in events if first <= event.time_range.start <= last]
        waits = {name: sum(seen == name for seen in inside) for name in WAITS}
        launches = sum(name.startswith(("cudaLaunchKernel", "cuLaunchKernel")) for name in inside)
        self._file.write_text(json.dumps({"waits": waits, "launches": launches, "steps": len(steps)}), "utf-8")

    def _count(self) -> None:
        """Take what the simulated device counted itself: torch's profiler does not know it, and waits for it."""
        from accelsweep.testing.simulator import current

        waits, launches = len(current().waits) - self._counted[0], current().launched - self._counted[1]
        self._counted = (waits, launches)
        if self._steps == LAST:
            found = {"waits": {"waits": waits}, "launches": launches, "steps": LAST - FIRST}
            self._file.write_text(json.dumps(found), "utf-8")
