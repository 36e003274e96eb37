"""The profile of a setting, recorded by torch's profiler and broken down by operator and by module, and its files.

The times include the profiler's overhead, so they are never mixed with times from measured runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.files import remove, sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.findings import Section
from accelsweep.records.layout import SweepFolder, check_file_name
from accelsweep.results import Fingerprint

if TYPE_CHECKING:
    from accelsweep.worker.run_spec import RunSpec

StepPart = Literal["forward", "backward", "optimizer", "data", "outside"]
"""The part of a step that a row of the module table represents."""

ROOT_MODULE = "(the module itself)"
"""The LightningModule itself, including work in its steps outside any submodule."""

NO_MODULE = {"optimizer": "(optimizer)", "data": "(loading data)", "outside": "(outside of modules)"}

PYTHON = "(Python, waiting)"
"""Time outside operators: the interpreter, and waiting."""

PROFILE_FILE = "profile.json"

TRACE_FILE = "trace.json.gz"


class TimeSpent(Frozen):
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


class OperatorTime(TimeSpent):
    """The time spent in an operator, for an average step."""

    name: str

    @property
    def title(self) -> str:
        """The name without torch's prefixes: `convolution backward` for `aten::convolution_backward`."""
        return self.name.removeprefix("aten::").strip("_").replace("_", " ")


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


class StepProfile(Frozen):
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


class SettingProfile(Document):
    """The stored profile of a setting, next to its trace in `sweeps/NAME/profiles/SETTING/`.

    `block` is the block whose frozen config was profiled. Only rank 0 of the `ranks` was profiled. `trace_sha256` is
    the digest of `trace.json.gz`.
    """

    kind: ClassVar[str] = "profile"

    sweep: str
    setting: str
    axes: dict[str, Any]
    block: str
    task: str
    started_at: str
    ranks: int
    profile: StepProfile
    fingerprint: Fingerprint
    trace_sha256: str


class PartDifference(Frozen):
    """Seconds per step of an operator, or of a module's pass, in two profiles; 0 if absent."""

    name: str
    before: float
    after: float


class ProfileFinding(Frozen):
    """A setting's profile, together with its measured step time. Times are in seconds per step, on average."""

    setting: str = Field(description="the setting's ID")
    label: str = Field(description="the setting's label")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    task: str = Field(description="the task whose steps were profiled")
    started_at: str = Field(description="when the profiling run started")
    ranks: int = Field(description="the number of ranks, of which rank 0 was profiled")
    device: str = Field(description="the device kind")
    device_name: str = Field(description="the device's name")
    warmup_steps: int = Field(description="the number of warm-up steps before the profiled steps")
    steps: int = Field(description="the number of profiled steps")
    profiled_step_seconds: float = Field(description="the wall time of a step under the profiler")
    measured_step_seconds: float | None = Field(description="the median step time over the setting's measured runs")
    cost: float | None = Field(description="the profiled step time divided by the measured step time")
    changed: str | None = Field(description="what has changed since the setting was measured")
    operators: tuple[OperatorTime, ...] = Field(description="the operators that take longest, excluding nested calls")
    modules: tuple[ModuleTime, ...] = Field(description="the modules that take longest, excluding nested calls")
    folder: str = Field(description="the folder with trace.json.gz and profile.json, which contains all rows")
    against: str | None = Field(default=None, description="the setting it is compared with")
    operator_differences: tuple[PartDifference, ...] = Field(default=(), description="operators whose times differ")
    module_differences: tuple[PartDifference, ...] = Field(default=(), description="modules whose times differ")


class Profiles(Section):
    """A sweep's profiles; `left_out` lists the unusable ones."""

    profiles: tuple[ProfileFinding, ...]
    left_out: tuple[str, ...] = ()


def profiles_folder(folder: SweepFolder) -> Path:
    """Return the folder of a sweep's profiles, which contains a folder per setting."""
    return folder.root / "profiles"


def profile_folder(folder: SweepFolder, setting: str) -> Path:
    """Return the folder of a setting's profile: profile.json, trace.json.gz, run.log."""
    return profiles_folder(folder) / check_file_name(setting)


def trace_of(spec: RunSpec) -> Path:
    """Return the path of rank 0's gzipped Chrome trace."""
    return Path(spec.attempt_folder) / TRACE_FILE


def store_profile(folder: SweepFolder, profile: SettingProfile, trace: Path) -> None:
    """Store a profile and its trace, replacing the setting's earlier one."""
    target = profile_folder(folder, profile.setting)
    remove(target / PROFILE_FILE)
    remove(target / TRACE_FILE)
    trace.rename(target / TRACE_FILE)
    profile.write(target / PROFILE_FILE)


class StoredProfiles(NamedTuple):
    """The intact profiles of some settings, and a note on each damaged profile."""

    intact: list[SettingProfile]
    left_out: list[str]


def stored_profiles(folder: SweepFolder, settings: Iterable[str]) -> StoredProfiles:
    """Return the profiles of these settings, in the given order."""
    profiles = StoredProfiles([], [])
    for setting in settings:
        path, trace = profile_folder(folder, setting) / PROFILE_FILE, profile_folder(folder, setting) / TRACE_FILE
        if not path.exists():
            continue
        try:
            profile = SettingProfile.read(path)
            if profile.setting == setting and profile.trace_sha256 == sha256_file(trace):
                profiles.intact.append(profile)
                continue
            reason = "it does not match this setting and its trace"
        except FileNotFoundError:
            reason = f"it has no {TRACE_FILE}"
        except DamagedFile as error:
            reason = error.reason
        except NewerFile as error:
            reason = str(error)
        remedy = f"accelsweep profile {folder.name} {setting} recreates it"
        profiles.left_out.append(f"{path.relative_to(folder.home)}: {reason}; {remedy}")
    return profiles


def check_archived(document: SettingProfile, path: Path, parts: Sequence[str]) -> None:
    """Raise DamagedFile if a profile in an archive is stored in a different setting's folder."""
    if document.setting != parts[2]:
        raise DamagedFile(path, f"it belongs to a different setting, {document.setting!r}")
