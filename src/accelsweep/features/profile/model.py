"""The profile of a setting: what torch's profiler saw in some steps of a run of its own, by operator and by module.

These numbers carry the profiler's own cost. They are never mixed into those of measured runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelsweep.worker.run_spec import RunSpec

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.files import remove, sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.findings import Section
from accelsweep.records.layout import SweepFolder, inside
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


# The profiles that a sweep's folder keeps.

PROFILE = "profile.json"
"""A profile, in its setting's folder; its trace and its log lie beside it."""


TRACE_FILE = "trace.json.gz"


def profiles_folder(folder: SweepFolder) -> Path:
    """Return the folder of a sweep's profiles, each in a folder of its own."""
    return folder.root / "profiles"


def profile_folder(folder: SweepFolder, cell: str) -> Path:
    """Return the folder of a setting's profile: profile.json, trace.json.gz, run.log."""
    return profiles_folder(folder) / inside(cell)


def trace_of(spec: RunSpec) -> Path:
    """Return the path of rank 0's trace, in Chrome's format and packed by gzip."""
    return Path(spec.attempt_folder) / TRACE_FILE


def keep_profile(folder: SweepFolder, found: SettingProfile, trace: Path) -> Path:
    """Put a profile and its trace in the place of the setting's earlier one; return its folder."""
    place = profile_folder(folder, found.cell)
    remove(place / PROFILE)
    remove(place / TRACE_FILE)
    trace.rename(place / TRACE_FILE)
    found.write(place / PROFILE)
    return place


class KeptProfiles(NamedTuple):
    """The whole profiles of some settings, and a sentence on each that cannot be used."""

    whole: list[SettingProfile]
    left_out: list[str]


def kept_profiles(folder: SweepFolder, cells: Iterable[str]) -> KeptProfiles:
    """Return the profiles of these cells, in their order."""
    found = KeptProfiles([], [])
    for cell in cells:
        place = profile_folder(folder, cell)
        if not (place / PROFILE).exists():
            continue
        try:
            profile = SettingProfile.read(place / PROFILE)
            whole = profile.cell == cell and profile.trace_sha256 == sha256_file(place / TRACE_FILE)
            why = "" if whole else "it is not the profile of this setting and its trace"
        except (FileNotFoundError, DamagedFile) as error:
            why = error.why if isinstance(error, DamagedFile) else f"it has no {TRACE_FILE}"
        except NewerFile as error:
            why = str(error)
        if why:
            again = f"accelsweep profile {folder.name} {cell} makes it anew"
            found.left_out.append(f"{(place / PROFILE).relative_to(folder.home)}: {why}; {again}")
        else:
            found.whole.append(profile)
    return found


def check_archived(document: SettingProfile, path: Path, parts: Sequence[str]) -> None:
    """Raise DamagedFile if a profile in an archive is not that of the setting whose folder it has."""
    if document.cell != parts[2]:
        raise DamagedFile(path, f"it is of another setting, {document.cell!r}")


class Profiles(Section):
    """The profiles of a sweep. They stand beside the measured numbers; those that cannot be used are named."""

    profiles: tuple[ProfileFinding, ...]
    left_out: tuple[str, ...] = ()
