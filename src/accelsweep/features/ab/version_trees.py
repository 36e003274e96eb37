"""The source trees under `sweeps/NAME/versions`: created before planning, restored if lost, removed by `clean`.

Trees are read-only and named after their digest, so an existing tree is correct unless somebody has modified it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import AccelsweepError, DamagedFile, InputError
from accelsweep.features.ab.repository import (
    Repository,
    add_worktree,
    is_unmodified_worktree,
    prune_worktrees,
    remove_worktree,
)
from accelsweep.features.ab.versions import copy_working_tree, environments, is_unmodified_copy, resolve_versions
from accelsweep.files import exclusive_lock
from accelsweep.git import GitFailed
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest


@contextlib.contextmanager
def version_trees(
    folder: SweepFolder,
    names: Sequence[str],
    pythons: Sequence[str],
    pinned: Sequence[Version] = (),
    *,
    script: bool = False,
    keep: bool = True,
) -> Iterator[tuple[Tree, ...]]:
    """Provide the trees of commits or environments to the `with` block, which plans the sweep.

    `pinned` lists the commits of `names`, if already resolved. `script` is whether the user's own training script is
    measured. Unless `keep` is set, new trees are removed afterwards.
    """
    if pythons and names:
        raise InputError(f"{names[0]} is a commit and --python an environment: compare either commits or environments")
    if pythons:
        yield environments(folder.home, pythons, script=script)
        return
    repository = Repository.around(folder.home)
    with create_trees(folder, repository, pinned or resolve_versions(repository, names), keep=keep) as trees:
        yield trees


@contextlib.contextmanager
def create_trees(
    folder: SweepFolder, repository: Repository, versions: Sequence[Version], *, keep: bool = True
) -> Iterator[tuple[Tree, ...]]:
    """Create missing and modified trees, and pass all trees to the `with` block, which plans the sweep.

    If planning fails and there is no earlier plan, the trees are removed, so that invalid input leaves nothing behind.
    Unless `keep` is set, new trees are always removed.
    """
    with _versions_lock(folder):
        missing = [target for version in versions if not (target := folder.version(version.id)).exists()]
        try:
            yield tuple(_tree(folder, repository, version) for version in versions)
        except BaseException:  # under the lock, so that no other command's trees of this sweep are removed
            _discard(folder, repository)
            raise
        finally:
            if not keep:
                for target in missing:
                    _make_writable(target)
                    remove_worktree(repository.checkout, target)
                _remove_empty(folder.versions, folder.root, folder.root.parent)


def discard_trees(folder: SweepFolder) -> None:
    """Remove the trees of a sweep that was not planned."""
    with _versions_lock(folder):
        _discard(folder, Repository.around(folder.home))


def _discard(folder: SweepFolder, repository: Repository) -> None:
    if not folder.manifest.exists():
        remove_trees(folder, repository.checkout)
        _remove_empty(folder.root)


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # not empty, or gone
            folder.rmdir()


def _tree(folder: SweepFolder, repository: Repository, version: Version) -> Tree:
    target = folder.version(version.id)
    tree = Tree(version=version, checkout=str(repository.checkout), place=repository.place)
    is_unmodified = is_unmodified_worktree if version.kind == "commit" else is_unmodified_copy
    if not (target.is_dir() and is_unmodified(version, target)):
        _create(tree, target)
    if not (target / repository.place).is_dir():
        raise InputError(
            f"{version.description} has no folder {repository.place}, the current one: run the command in a folder "
            "that all versions have, or choose other versions"
        )
    return tree


def _create(tree: Tree, target: Path) -> None:
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
    """Restore the plan's missing trees; return a message for each version whose tree cannot be restored."""
    messages = []
    for version in Manifest.read(folder.manifest).compared:
        with contextlib.suppress(FileNotFoundError, DamagedFile):
            tree = Tree.read(folder.version_file(version.id))
            target = folder.version(version.id)
            if not tree.checkout or target.is_dir():
                continue
            try:
                with _versions_lock(folder):
                    _create(tree, target)
            except (AccelsweepError, OSError) as error:
                messages.append(f"version {version.name} cannot be restored: {error}")
    return messages


def remove_trees(folder: SweepFolder, checkout: Path | None = None) -> None:
    """Remove all trees of a sweep, and their entries in git's list of worktrees."""
    checkouts = {checkout} if checkout is not None else set()
    for path in sorted(folder.versions.glob("*.json")):
        with contextlib.suppress(DamagedFile, FileNotFoundError):
            checkouts.add(Path(Tree.read(path).checkout or os.curdir))
    _make_writable(folder.versions)
    shutil.rmtree(folder.versions, ignore_errors=True)
    for repository in checkouts:
        with contextlib.suppress(GitFailed, InputError, OSError):  # the repository may be gone
            prune_worktrees(repository)


def _versions_lock(folder: SweepFolder) -> contextlib.AbstractContextManager[None]:
    """Serialise commands on this machine that create trees of this sweep."""
    return exclusive_lock("versions", folder.root)


def _make_read_only(tree: Path) -> None:
    _change_modes(tree, lambda mode: mode & ~0o222)


def _make_writable(tree: Path) -> None:
    _change_modes(tree, lambda mode: mode | stat.S_IWUSR)


def _change_modes(tree: Path, change: Callable[[int], int]) -> None:
    """Change the modes of a tree and its contents, except links.

    Folders are changed first, to make their contents accessible.
    """
    if not tree.is_dir() or tree.is_symlink():
        return
    content = (Path(parent, name) for parent, folders, files in os.walk(tree) for name in (*folders, *files))
    for path in (tree, *content):
        if not path.is_symlink():
            with contextlib.suppress(PermissionError):  # another user's file, or a file system without permission bits
                path.chmod(change(path.stat().st_mode))
