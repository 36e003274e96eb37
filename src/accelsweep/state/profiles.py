"""The profiles that a sweep's folder keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from accelsweep.core.recorded.profiles import SettingProfile
from accelsweep.errors import DamagedFile, NewerFile
from accelsweep.files import remove, sha256_file
from accelsweep.records.layout import TRACE_FILE, SweepFolder

PROFILE = "profile.json"
"""A profile, in its setting's folder; its trace and its log lie beside it."""


def keep_profile(folder: SweepFolder, found: SettingProfile, trace: Path) -> Path:
    """Put a profile and its trace in the place of the setting's earlier one; return its folder."""
    place = folder.profile(found.cell)
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
        place = folder.profile(cell)
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


def profile_files(folder: SweepFolder) -> list[Path]:
    """Return the documents and traces of all profiles, for whoever copies them."""
    return sorted(
        path for name in (PROFILE, TRACE_FILE) for path in folder.profiles.glob(f"[!.]*/{name}") if path.is_file()
    )
