"""A commit as a version: a worktree of the user's repository, made by git itself."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from accelsweep.config.versions import Version
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.files import exclusive_lock
from accelsweep.git import GitFailed, git

_COMPILED = ":(exclude,glob)**/__pycache__/**"


def add_worktree(checkout: Path, version: Version, target: Path) -> None:
    """Check a commit out below `target`, its submodules too. Raises AccelsweepError where git cannot."""
    common = _common_folder(checkout)
    with _one_change_at_a_time(common):
        git(checkout, "worktree", "add", "--force", "--detach", "--quiet", str(target), version.digest)
    try:
        _add_submodules(checkout, target, common)
    except AccelsweepError:
        remove_worktree(checkout, target)
        raise


def _common_folder(checkout: Path) -> Path:
    """Return the folder that all worktrees of a repository share."""
    return (checkout / git(checkout, "rev-parse", "--git-common-dir").removesuffix("\n")).resolve()


def _one_change_at_a_time(common: Path) -> contextlib.AbstractContextManager[None]:
    """Git's own commands do not wait for each other: `prune` removes an entry that `add` is just making."""
    return exclusive_lock("worktrees", common)


def _add_submodules(checkout: Path, target: Path, common: Path) -> None:
    """Check out the submodules that the user's own checkout has, from its own copies: no network, no settings."""
    if not (target / ".gitmodules").is_file():
        return
    listed = git(target, "config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    for line in listed.splitlines():
        key, _, path = line.partition(" ")
        source = (common / "modules" / key.removeprefix("submodule.").removesuffix(".path")).resolve()
        entry = git(target, "ls-tree", "HEAD", "--", path).split()
        if not source.is_dir() or len(entry) < 3 or entry[1] != "commit":
            continue  # the user's own checkout does without it, too
        _add_submodule(source, target / path, entry[2])
        _add_submodules(checkout / path, target / path, source)


def _add_submodule(source: Path, target: Path, commit: str) -> None:
    git(source, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(target))
    try:
        git(target, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", commit)
    except GitFailed as error:
        raise InputError(
            f"the submodule in {target.name} lacks the commit {commit[:12]} ({error}): check that version out once "
            "with `git submodule update --init --recursive`"
        ) from None


def is_whole_worktree(version: Version, target: Path) -> bool:
    """Return whether a worktree still is that commit; compiled modules do not count."""
    try:
        at = git(target, "rev-parse", "--show-toplevel", "HEAD").split("\n")
        changed = git(target, "status", "--porcelain", "--untracked-files=all", "--", ".", _COMPILED)
    except GitFailed:
        return False
    return Path(at[0]).resolve() == target.resolve() and at[1] == version.digest and not changed.strip()


def remove_worktree(checkout: Path, target: Path) -> None:
    """Remove a worktree, or what is left of it, and take it off git's list."""
    shutil.rmtree(target, ignore_errors=True)
    if checkout.is_dir():
        prune_worktrees(checkout)


def prune_worktrees(checkout: Path) -> None:
    """Take the worktrees whose folders are gone off git's list. Raises AccelsweepError where git cannot."""
    with _one_change_at_a_time(_common_folder(checkout)):
        git(checkout, "worktree", "prune")
