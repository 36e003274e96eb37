"""The profiles that a sweep's folder keeps."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from accelsweep.base.documents import remove, sha256_file
from accelsweep.base.errors import DamagedFile, NewerFile
from accelsweep.core.profiles import SettingProfile
from accelsweep.state.folders import SweepFolder

PROFILE, TRACE, LOG = "profile.json", "trace.json.gz", "run.log"
"""The files of a profile, in its setting's folder."""


def keep_profile(folder: SweepFolder, found: SettingProfile, trace: Path) -> Path:
    """Put a profile and its trace in the place of the setting's earlier one; return its folder."""
    place = folder.profile(found.cell)
    remove(place / PROFILE)
    remove(place / TRACE)
    trace.rename(place / TRACE)
    found.write(place / PROFILE)
    return place


def kept_profiles(folder: SweepFolder, cells: Iterable[str]) -> list[SettingProfile]:
    """Return the whole profiles of these cells, in their order. One that is damaged, or a later version's, is none."""
    found = []
    for cell in cells:
        place = folder.profile(cell)
        try:
            profile = SettingProfile.read(place / PROFILE)
            if profile.cell == cell and profile.trace_sha256 == sha256_file(place / TRACE):
                found.append(profile)
        except (FileNotFoundError, DamagedFile, NewerFile):
            continue
    return found


def profile_files(folder: SweepFolder) -> list[Path]:
    """Return the documents and traces of all profiles, for whoever copies them."""
    return sorted(path for name in (PROFILE, TRACE) for path in folder.profiles.glob(f"[!.]*/{name}") if path.is_file())
