"""Resolves what `ab` compares: commits by name, the working tree, or Python environments."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.features.ab.repository import Repository
from accelsweep.files import NO_HARD_LINKS
from accelsweep.installation import __version__
from accelsweep.measure.machine_state import PACKAGES
from accelsweep.plain_json import canonical_json, sha256_text
from accelsweep.planning.interpreter import query_interpreter
from accelsweep.records.layout import REPORTS_FOLDER, SWEEPS_FOLDER

WORKING_TREE = "."
"""The version name of the working tree, which comprises tracked files and untracked files not ignored by git."""

_OUTPUT_FOLDERS = (SWEEPS_FOLDER, REPORTS_FOLDER, "mlruns", "mlartifacts", ".snakemake")

_OUTPUT_FILES = ("mlflow.db",)


def resolve_versions(repository: Repository, names: Sequence[str]) -> tuple[Version, ...]:
    """Return the versions with these names. Raises InputError if there are fewer than two or any duplicates."""
    if len(names) < 2:
        raise InputError(
            "ab needs at least two versions to compare: commits by name, such as `main HEAD`, or . for the working tree"
        )
    versions: list[Version] = []
    for name in names:
        version = working_tree_version(repository) if name == WORKING_TREE else repository.version(name)
        if (twin := next((other for other in versions if other.digest == version.digest), None)) is not None:
            raise InputError(
                f"{twin.name} and {version.name} are the same commit ({version.id}), so there is nothing to compare"
            )
        versions.append(version)
    return tuple(versions)


def working_tree_version(repository: Repository) -> Version:
    """Return the working tree as a version."""
    digest = _digest(repository.checkout, working_files(repository))
    return Version(name=WORKING_TREE, kind="files", digest=digest)


def working_files(repository: Repository) -> list[Path]:
    """Return the sorted paths of the working tree's files, relative to the checkout.

    accelsweep's own untracked output is left out, even if git does not ignore it.
    """
    top = repository.checkout
    home = top / repository.place

    def is_output(path: Path) -> bool:
        if home not in path.parents:
            return False
        first = path.relative_to(home).parts[0]
        return first in _OUTPUT_FOLDERS or first.startswith(_OUTPUT_FILES)

    untracked = (path for path in repository.files(top, "--others", "--exclude-standard") if not is_output(path))
    paths = {*repository.files(top, "--cached"), *untracked}
    return sorted(
        path.relative_to(top) for path in paths if os.path.lexists(path) and home / SWEEPS_FOLDER not in path.parents
    )


def copy_working_tree(repository: Repository, version: Version, target: Path) -> None:
    """Copy the working tree to `target`.

    Raises AccelsweepError if the tree changed after its digest was computed, or if the file system does not support
    symbolic links.
    """
    partial = target.with_name(f".{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for path in (files := working_files(repository)):
        source = repository.checkout / path
        (partial / path).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(source, partial / path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS or not source.is_symlink():
                raise
            raise AccelsweepError(
                f"{path} is a symbolic link, but the disk of {target.parent} does not support links: use another disk"
            ) from None
    if _digest(partial, files) != version.digest:
        shutil.rmtree(partial)
        raise AccelsweepError("the working tree was edited while it was copied: run the same command again")
    partial.rename(target)


def is_unmodified_copy(version: Version, target: Path) -> bool:
    """Return whether a copy still contains exactly the files of `version`, apart from compiled modules."""
    paths = (path for path in target.rglob("*") if path.is_symlink() or path.is_file())
    files = sorted(path.relative_to(target) for path in paths if "__pycache__" not in path.parts)
    return _digest(target, files) == version.digest


def _digest(top: Path, files: Iterable[Path]) -> str:
    """Return a digest of the names, types and contents of the files under `top`."""
    lines = []
    for file in files:
        path = top / file
        if path.is_symlink():
            content = f"link {os.fsencode(path.readlink())!r}"
        else:
            with path.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            content = f"{'x' if path.stat().st_mode & 0o100 else '-'} {digest}"
        lines.append(f"{os.fsencode(file)!r} {content}")
    return sha256_text("\n".join(lines))


def environments(home: Path, names: Sequence[str], *, script: bool = False) -> tuple[Tree, ...]:
    """Return the environments of the Python interpreters at these paths as versions.

    `script` is whether they run the user's own training script, for which accelsweep need not be installed. Raises
    InputError if there are fewer than two environments, if one cannot run measurements, or if two contain the same
    packages.
    """
    if len(names) < 2:
        raise InputError("--python specifies one environment, but a comparison needs at least two: use it twice")
    trees: list[Tree] = []
    for name in names:
        tree = _environment(home, name, script=script)
        if (twin := next((other for other in trees if other.version.digest == tree.version.digest), None)) is not None:
            raise InputError(
                f"--python {twin.version.name} and {name} have the same Python and packages, so there is nothing to "
                "compare"
            )
        trees.append(tree)
    return tuple(trees)


def _environment(home: Path, name: str, *, script: bool) -> Tree:
    python = (home / Path(name).expanduser()).absolute()  # not resolved: a venv's interpreter is a symlink to its base
    full_version, packages = query_interpreter(python, f"--python {name}")
    ours = packages.get("accelsweep")
    missing = [package for package in ("accelsweep", *PACKAGES) if package not in packages]
    if not script and (missing or ours != __version__):
        lacks = f"lacks {' and '.join(missing)}" if missing else f"has accelsweep {ours}"
        raise InputError(
            f"--python {name} {lacks}, and its runs need accelsweep {__version__} with torch and lightning: "
            f"{python} -m pip install accelsweep=={__version__}"
        )
    digest = sha256_text(canonical_json([full_version, sorted(packages.items())]))
    version = Version(name=name, kind="environment", digest=digest, python=str(python))
    return Tree(version=version, checkout="", place=".", software={"python": full_version.split()[0], **packages})
