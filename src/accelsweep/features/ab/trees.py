"""The trees below `sweeps/NAME/versions`: made before the plan, made again where they are lost, removed by `clean`.

They are named by what they hold, and read-only. So a tree that is there is the right one, unless somebody altered it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.features.ab.repository import (
    Repository,
    add_worktree,
    environments,
    is_whole_worktree,
    prune_worktrees,
    remove_worktree,
)
from accelsweep.files import NO_HARD_LINKS, exclusive_lock
from accelsweep.git import GitFailed
from accelsweep.plain_json import sha256_text
from accelsweep.records.layout import REPORTS_FOLDER, SWEEPS_FOLDER, SweepFolder
from accelsweep.records.plan import Manifest

# The working tree as a version: its tracked files, and the untracked ones that git does not ignore.

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


def versions_named(repository: Repository, names: Sequence[str]) -> tuple[Version, ...]:
    """Return what the names stand for. Raises InputError for fewer than two, and for two names of one version."""
    if len(names) < 2:
        raise InputError(
            "ab compares versions, so it needs two or more: commits by name, such as `main HEAD`, or . for the files "
            "as they are now"
        )
    found = tuple(version_of(repository) if name == WORKING_TREE else repository.version(name) for name in names)
    for number, version in enumerate(found):
        if (twin := next((one for one in found[:number] if one.digest == version.digest), None)) is not None:
            raise InputError(
                f"{twin.name} and {version.name} are one commit ({version.id}), so there is nothing to compare"
            )
    return found


@contextlib.contextmanager
def trees_made(
    folder: SweepFolder, repository: Repository, versions: Sequence[Version], *, keep: bool = True
) -> Iterator[tuple[Tree, ...]]:
    """Make the trees that are missing or altered; give them to the with-block, which plans the sweep.

    If that fails and there is no plan, the trees are removed again, so that wrong input leaves no trace. Without `keep`
    those that were missing are removed in any case.
    """
    with _alone(folder):
        missing = [version for version in versions if not folder.version(version.id).exists()]
        try:
            yield tuple(_made(folder, repository, version) for version in versions)
        except BaseException:  # still alone: another command's trees of this sweep are not taken from under it
            if not folder.manifest.exists():
                remove_trees(folder, repository.checkout)
                _remove_empty(folder.root)
            raise
        finally:
            if not keep:
                for version in missing:
                    _make_writable(folder.version(version.id))
                    remove_worktree(repository.checkout, folder.version(version.id))
                _remove_empty(folder.versions, folder.root, folder.root.parent)


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # it holds something, or is gone
            folder.rmdir()


@contextlib.contextmanager
def trees_of(
    folder: SweepFolder,
    names: Sequence[str],
    pythons: Sequence[str],
    pinned: Sequence[Version] = (),
    *,
    keep: bool = True,
) -> Iterator[tuple[Tree, ...]]:
    """Give the trees of commits, or what is known of environments, to the with-block, which plans the sweep.

    `pinned` is what the names stood for when somebody looked them up. Without `keep` no new tree outlasts the block.
    """
    if pythons and names:
        raise InputError(f"{names[0]} is a commit and --python an environment: compare the ones or the others")
    if pythons:
        yield environments(folder.home, pythons)
        return
    repository = Repository.around(folder.home)
    with trees_made(folder, repository, pinned or versions_named(repository, names), keep=keep) as trees:
        yield trees


def _made(folder: SweepFolder, repository: Repository, version: Version) -> Tree:
    target = folder.version(version.id)
    tree = Tree(version=version, checkout=str(repository.checkout), place=repository.place)
    if not _is_whole(version, target):
        _remake(tree, target)
    if not (target / repository.place).is_dir():
        lacks = f"{version.description} has no folder {repository.place}, where this command was given"
        raise InputError(f"{lacks}: give it in a folder that all versions have, or name other versions")
    return tree


def _is_whole(version: Version, target: Path) -> bool:
    if not target.is_dir():
        return False
    return is_whole_worktree(version, target) if version.kind == "commit" else is_whole_copy(version, target)


def _remake(tree: Tree, target: Path) -> None:
    checkout = Path(tree.checkout)
    _make_writable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if tree.version.kind == "commit":
        remove_worktree(checkout, target)
        add_worktree(checkout, tree.version, target)
    else:
        shutil.rmtree(target, ignore_errors=True)
        copy_working_tree(Repository(checkout, tree.place), tree.version, target)
    _make_read_only(target)


def restore_trees(folder: SweepFolder) -> list[str]:
    """Make lost trees of the plan's commits again; return a sentence for each version that cannot be."""
    missing = []
    for version in Manifest.read(folder.manifest).compared:
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            tree = Tree.read(folder.version_file(version.id))
            target = folder.version(version.id)
            if not tree.checkout or target.is_dir():
                continue
            try:
                with _alone(folder):
                    _remake(tree, target)
            except (AccelsweepError, OSError) as error:
                missing.append(f"version {version.name} cannot be made again: {error}")
    return missing


def remove_trees(folder: SweepFolder, checkout: Path | None = None) -> None:
    """Remove all trees of a sweep, and take them off git's list of worktrees."""
    checkouts = {checkout} if checkout is not None else set()
    for path in sorted(folder.versions.glob("*.json")):
        with contextlib.suppress(DamagedFile, FileNotFoundError):
            checkouts.add(Path(Tree.read(path).checkout or os.curdir))
    _make_writable(folder.versions)
    shutil.rmtree(folder.versions, ignore_errors=True)
    for one in checkouts:
        with contextlib.suppress(GitFailed, InputError, OSError):  # the repository may be gone, and the trees are
            prune_worktrees(one)


def _alone(folder: SweepFolder) -> contextlib.AbstractContextManager[None]:
    """Keep a second command for this sweep on this machine waiting while trees are made."""
    return exclusive_lock("versions", folder.root)


def _make_read_only(tree: Path) -> None:
    _change_modes(tree, lambda mode: mode & ~0o222)


def _make_writable(tree: Path) -> None:
    _change_modes(tree, lambda mode: mode | stat.S_IWUSR)


def _change_modes(tree: Path, to: Callable[[int], int]) -> None:
    """Change the modes of a tree and all that is in it, links apart; folders first, so that those inside are found."""
    if not tree.is_dir() or tree.is_symlink():
        return
    for path in (
        tree,
        *(Path(parent, name) for parent, folders, files in os.walk(tree) for name in (*folders, *files)),
    ):
        if not path.is_symlink():
            with contextlib.suppress(PermissionError):  # another user's, or on a disk without permission bits
                path.chmod(to(path.stat().st_mode))
