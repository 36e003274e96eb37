"""The profile of a setting: what torch's profiler saw in some steps of a run of its own, by operator and by module.

These numbers carry the profiler's own cost. They are never mixed into those of measured runs.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from accelsweep.json_documents import Document, Frozen
from accelsweep.records.run_record import Fingerprint

StepPart = Literal["forward", "backward", "optimizer", "data", "outside"]
"""The parts of a step that a module's row, or one without a module, may stand for."""

WHOLE_MODULE = "(the module itself)"
"""The words for the LightningModule, and for work in its steps that no module inside it does."""

NO_MODULE = {"optimizer": "(optimizer)", "data": "(loading data)", "outside": "(outside of modules)"}
"""The words for the parts of a step without a module."""

PYTHON = "(Python, waiting)"
"""The name of the time that no operator took: the interpreter between operators, and waiting for others."""


class TimeSpent(Frozen):
    """Calls in a step, and the seconds that they took themselves.

    `host_seconds` are those of all threads of the process. `device_seconds` are those of the kernels and copies that it
    started; None where the device is the host.
    """

    calls: float
    host_seconds: float
    device_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds on the device, where there is one, else those on the host."""
        return self.host_seconds if self.device_seconds is None else self.device_seconds


class OperatorTime(TimeSpent):
    """One operator in a step, without the operators that it called."""

    name: str

    @property
    def words(self) -> str:
        """The name without what torch puts around it: `convolution backward` for `aten::convolution_backward`."""
        return self.name.removeprefix("aten::").strip("_").replace("_", " ")


class ModuleTime(TimeSpent):
    """One module in a step, in its forward or backward pass, without the modules inside it.

    `name` is its path in the LightningModule, which is empty for the whole one and for no module. `form` is its class.
    """

    name: str
    form: str
    part: StepPart

    @property
    def words(self) -> str:
        """The module's path with its direction, or the part of the step that no module has."""
        if self.part in ("forward", "backward"):
            return f"{self.name or WHOLE_MODULE} {self.part}"
        return NO_MODULE[self.part]


class StepProfile(Frozen):
    """The profiled steps of rank 0, after `warmup_steps` steps that do not count.

    `step_seconds` is the length of a step by the clock while the profiler looked. `operators` and `modules` are means
    over the steps, the longest first.
    """

    warmup_steps: int
    steps: int
    step_seconds: float
    device: str
    device_name: str
    operators: tuple[OperatorTime, ...]
    modules: tuple[ModuleTime, ...]


class SettingProfile(Document):
    """The profile of one setting of a sweep, beside its trace in `sweeps/NAME/profiles/SETTING/`.

    `cell` is the setting, `block` the block whose frozen config was profiled, `ranks` the number of ranks, of which
    rank 0 was looked at. `trace_sha256` is the digest of `trace.json.gz`.
    """

    kind: ClassVar[str] = "profile"

    sweep: str
    cell: str
    axes: dict[str, Any]
    block: str
    task: str
    started_at: str
    ranks: int
    found: StepProfile
    fingerprint: Fingerprint
    trace_sha256: str


class PartDifference(Frozen):
    """An operator, or a module in one direction, in two profiles: seconds of a step in each, 0 where it is absent."""

    name: str
    before: float
    after: float


class ProfileFinding(Frozen):
    """A profile as the report shows it, beside the measured step of its setting.

    `measured_step_seconds` is the median of the setting's runs, None where none of them stands any more. `cost` is the
    ratio of a profiled step's time to it. `changed` says what is not as it was when the setting was measured, None
    where nothing is. `against` is the setting that the differences are to: each is this setting's second less that
    one's. `folder` is the profile's, as a path below the working directory.
    """

    cell: str
    label: str
    axes: dict[str, Any]
    task: str
    started_at: str
    ranks: int
    device: str
    device_name: str
    warmup_steps: int
    steps: int
    profiled_step_seconds: float
    measured_step_seconds: float | None
    cost: float | None
    changed: str | None
    operators: tuple[OperatorTime, ...]
    modules: tuple[ModuleTime, ...]
    folder: str
    against: str | None = None
    operator_differences: tuple[PartDifference, ...] = ()
    module_differences: tuple[PartDifference, ...] = ()
