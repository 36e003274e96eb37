"""The time of a step, broken down by operator and by module.

A rank reports it from the environment of the measured script, so this module needs only the standard library.
The times include the profiler's overhead, so they are never mixed with times from measured runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from accelsweep.worker.run_spec import RunSpec

StepPart = Literal["forward", "backward", "optimizer", "data", "outside"]
"""The part of a step that a row of the module table represents."""

ROOT_MODULE = "(the module itself)"
"""The LightningModule itself, including work in its steps outside any submodule."""

NO_MODULE = {"optimizer": "(optimizer)", "data": "(loading data)", "outside": "(outside of modules)"}

PYTHON = "(Python, waiting)"
"""Time outside operators: the interpreter, and waiting."""

TRACE_FILE = "trace.json.gz"


@dataclass(frozen=True, kw_only=True)
class TimeSpent:
    """Calls per step, and their self time in seconds, which excludes nested calls.

    `host_seconds` is the sum over all threads. `device_seconds` is the time of the launched kernels and copies, None if
    the device is the host.
    """

    calls: float
    host_seconds: float
    device_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """The time in seconds, on the device if there is one, else on the host."""
        return self.host_seconds if self.device_seconds is None else self.device_seconds


@dataclass(frozen=True, kw_only=True)
class OperatorTime(TimeSpent):
    """The time spent in an operator, for an average step."""

    name: str

    @property
    def title(self) -> str:
        """The name without torch's prefixes: `convolution backward` for `aten::convolution_backward`."""
        return self.name.removeprefix("aten::").strip("_").replace("_", " ")


@dataclass(frozen=True, kw_only=True)
class ModuleTime(TimeSpent):
    """The time spent in a module's forward or backward pass, for an average step.

    `name` is the module's path in the LightningModule, empty for the root and for work outside modules. `form` is its
    class.
    """

    name: str
    form: str
    part: StepPart

    @property
    def title(self) -> str:
        """The module's path and direction, or the part of the step outside modules."""
        if self.part in ("forward", "backward"):
            return f"{self.name or ROOT_MODULE} {self.part}"
        return NO_MODULE[self.part]


@dataclass(frozen=True, kw_only=True)
class StepProfile:
    """The profiled steps of rank 0 after the warm-up.

    `step_seconds` is the mean wall time of a step under the profiler. `operators` and `modules` are means over the
    steps, longest first.
    """

    warmup_steps: int
    steps: int
    step_seconds: float
    device: str
    device_name: str
    operators: tuple[OperatorTime, ...]
    modules: tuple[ModuleTime, ...]


def trace_of(spec: RunSpec) -> Path:
    """Return the path of rank 0's gzipped Chrome trace."""
    return Path(spec.attempt_folder) / TRACE_FILE
