"""The working tree as a version: its tracked files, and the untracked ones that git does not ignore."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from accelsweep.config.versions import Version
from accelsweep.drive.versions.repository import Repository
from accelsweep.errors import AccelsweepError
from accelsweep.files import NO_HARD_LINKS
from accelsweep.json_documents import sha256_text
from accelsweep.records.layout import REPORTS_FOLDER, SWEEPS_FOLDER

WORKING_TREE = "."
"""The name of the version that the working tree is."""

_MADE_HERE = (SWEEPS_FOLDER, REPORTS_FOLDER, "mlruns", "mlartifacts", ".snakemake")
_MADE_FILES = ("mlflow.db",)


def working_files(repository: Repository) -> list[Path]:
    """Return the paths, relative to the checkout, of the files that make up the working tree, in order.

    Files that accelsweep itself has made in the working directory are no part of it, also where git does not ignore
    them.
    """
    top = repository.checkout
    home = top / repository.place
    tracked = set(repository.files(top, "--cached"))
    others = {path for path in repository.files(top, "--others", "--exclude-standard") if not _made_here(path, home)}
    there = (path for path in tracked | others if os.path.lexists(path) and home / SWEEPS_FOLDER not in path.parents)
    return sorted(path.relative_to(top) for path in there)


def _made_here(path: Path, home: Path) -> bool:
    if home not in path.parents:
        return False
    first = path.relative_to(home).parts[0]
    return first in _MADE_HERE or first.startswith(_MADE_FILES)


def version_of(repository: Repository) -> Version:
    """Return the working tree as a version."""
    return Version(name=WORKING_TREE, kind="files", digest=digest_of(repository.checkout, working_files(repository)))


def digest_of(top: Path, files: Iterable[Path]) -> str:
    """Return one digest of the names, kinds and contents of files below `top`."""
    return sha256_text("\n".join(f"{os.fsencode(path)!r} {_content(top / path)}" for path in files))


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link {os.fsencode(path.readlink())!r}"
    mode = "x" if path.stat().st_mode & 0o100 else "-"
    with path.open("rb") as file:
        return f"{mode} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def copy_working_tree(repository: Repository, version: Version, target: Path) -> None:
    """Copy the working tree to `target`.

    Raises AccelsweepError if it changed after its digest was taken, and if it has links that the disk cannot hold.
    """
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for path in (files := working_files(repository)):
        (part / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(repository.checkout / path, part / path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS or not (repository.checkout / path).is_symlink():
                raise
            raise AccelsweepError(
                f"{path} is a symbolic link, and the disk of {target.parent} has none: give the command on another disk"
            ) from None
    part.mkdir(parents=True, exist_ok=True)
    if digest_of(part, files) != version.digest:
        shutil.rmtree(part)
        raise AccelsweepError("the working tree was edited while it was copied: give the same command again")
    part.rename(target)


def is_whole_copy(version: Version, target: Path) -> bool:
    """Return whether a copy still has the files that it was made of, and no others; compiled modules do not count."""
    found = (path for path in target.rglob("*") if path.is_symlink() or path.is_file())
    files = sorted(path.relative_to(target) for path in found if "__pycache__" not in path.parts)
    return digest_of(target, files) == version.digest
