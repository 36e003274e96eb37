"""A setting's profile as stored in a sweep and as shown in a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.features.profile.step_profile import TRACE_FILE, ModuleTime, OperatorTime, StepProfile
from accelsweep.files import remove, sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.findings import Section
from accelsweep.records.layout import SweepFolder, check_file_name
from accelsweep.results import Fingerprint

PROFILE_FILE = "profile.json"


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
