"""The sources of `history`: sweeps of this working directory, or archives, which are checked and not imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from accelsweep.errors import InputError, nearest
from accelsweep.records.cleanup import temporary_folder
from accelsweep.records.layout import SWEEPS_FOLDER, SweepFolder, known_sweeps
from accelsweep.records.plan import Manifest
from accelsweep.state.archive.check import checked

if TYPE_CHECKING:
    from accelsweep.analysis.merge_sweeps import Part

_ENDING = ".zip"


def parts_named(home: Path, words: Sequence[str]) -> list[Part]:
    """Return the sweeps that these words name, each once: names of sweeps, archives, or folders of archives.

    Raises InputError for other words and for an archive that cannot be used; nothing is written.
    """
    known = known_sweeps(home)
    places = [place for word in words for place in _places(home, word, known)]
    return [
        _of_archive(place) if isinstance(place, Path) else _of_sweep(home, place) for place in dict.fromkeys(places)
    ]


def _places(home: Path, word: str, known: Sequence[str]) -> list[Path | str]:
    if word in known:
        return [word]
    path = home / Path(word).expanduser()
    if path.is_dir():
        archives: list[Path | str] = sorted(path.glob(f"*{_ENDING}"))
        if not archives:
            raise InputError(f"{path} holds no archive (*{_ENDING}): make them with `accelsweep export NAME --to FILE`")
        return archives
    if path.is_file():
        return [path]
    there = f"there are: {', '.join(known)}" if known else f"there are none under {home / SWEEPS_FOLDER}"
    raise InputError(f"no sweep, archive or folder {word!r}{nearest(word, known)}; {there}")


def _of_sweep(home: Path, name: str) -> Part:
    return _part(name, SweepFolder(home, name))


def _of_archive(path: Path) -> Part:
    """Return the sweep of an archive by the name of its file. Files outside of this folder stay as they are."""
    with temporary_folder("archive") as folder, checked(path) as archive:
        needed = [place for place in archive.contents.files if place.startswith("sweep/") and place.endswith(".json")]
        place = SweepFolder(folder, archive.contents.name)
        archive.unpack(needed, place.root)
        return _part(path.name.removesuffix(_ENDING), place)


def _part(name: str, folder: SweepFolder) -> Part:
    from accelsweep.analysis.collect import look_up
    from accelsweep.analysis.merge_sweeps import Part

    manifest = Manifest.read(folder.manifest)
    return Part(name, look_up(folder, manifest), manifest)
