"""The user's git repository, accessed with the `git` command. Only its list of worktrees is modified."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.versions import Version
from accelsweep.errors import AccelsweepError, InputError, nearest
from accelsweep.files import exclusive_lock
from accelsweep.git import GitFailed, git


@dataclass(frozen=True)
class Repository:
    """A checkout's top-level folder, and `place`, the path of the working directory relative to it."""

    checkout: Path
    place: str

    @classmethod
    def around(cls, home: Path) -> Repository:
        """Return the repository that contains `home`. Raises InputError if `home` is not inside a checkout."""
        try:
            checkout = git(home, "rev-parse", "--show-toplevel").removesuffix("\n")
        except GitFailed as error:
            raise InputError(
                f"{home} is not inside a git checkout ({error}), and `ab` compares commits: run `git init`, and commit "
                "your modules and conf/"
            ) from None
        place = home.resolve().relative_to(Path(checkout).resolve())
        return cls(Path(checkout), place.as_posix())

    def version(self, name: str) -> Version:
        """Return the commit that a revision, such as a branch, a hash or `HEAD~2`, refers to.

        Raises InputError if there is none.
        """
        try:
            commit = git(self.checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitFailed:
            raise InputError(self._unknown_revision(name)) from None
        return Version(name=name, kind="commit", digest=commit.strip())

    def _unknown_revision(self, name: str) -> str:
        try:
            git(self.checkout, "rev-parse", "--verify", "--quiet", "HEAD")
        except GitFailed:
            return f"{name}: {self.checkout} has no commit yet, so there is nothing to compare: commit first"
        unknown = f"{name}: {self.checkout} has no such commit"
        if git(self.checkout, "rev-parse", "--is-shallow-repository").strip() == "true":
            return (
                f"{unknown}, and it is a shallow clone: fetch the rest with `git fetch --unshallow` "
                "(in a workflow: fetch-depth: 0)"
            )
        refs = git(self.checkout, "for-each-ref", "--format=%(refname:short)").split("\n")
        return f"{unknown}{nearest(name, refs)}. Overrides are KEY=VALUE; all other arguments are commits"

    def files(self, folder: Path, *kind: str) -> Iterator[Path]:
        """Yield the files that `git ls-files` lists under `folder`, including those in submodules."""
        for name in filter(None, git(folder, "ls-files", "-z", *kind).split("\0")):
            path = folder / name
            if path.is_dir() and not path.is_symlink():  # a submodule, or a nested repository
                if (path / ".git").exists() and kind[0] == "--cached":
                    yield from self.files(path, "--cached")
                    yield from self.files(path, "--others", "--exclude-standard")
                continue
            yield path


_COMPILED = ":(exclude,glob)**/__pycache__/**"


def add_worktree(checkout: Path, version: Version, target: Path) -> None:
    """Check out a commit and its submodules into `target`. Raises AccelsweepError if git fails."""
    common = _common_folder(checkout)
    with _worktree_lock(common):
        git(checkout, "worktree", "add", "--force", "--detach", "--quiet", str(target), version.digest)
    try:
        _add_submodules(checkout, target, common)
    except AccelsweepError:
        remove_worktree(checkout, target)
        raise


def _common_folder(checkout: Path) -> Path:
    """Return the .git folder that all worktrees of a repository share."""
    return (checkout / git(checkout, "rev-parse", "--git-common-dir").removesuffix("\n")).resolve()


def _worktree_lock(common: Path) -> contextlib.AbstractContextManager[None]:
    """Serialise worktree commands: git does not, so `prune` can remove an entry that `add` has just created."""
    return exclusive_lock("worktrees", common)


def _add_submodules(checkout: Path, target: Path, common: Path) -> None:
    """Clone the submodules of the user's checkout from their local repositories, without network access."""
    if not (target / ".gitmodules").is_file():
        return
    listed = git(target, "config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    for line in listed.splitlines():
        key, _, path = line.partition(" ")
        source = (common / "modules" / key.removeprefix("submodule.").removesuffix(".path")).resolve()
        entry = git(target, "ls-tree", "HEAD", "--", path).split()
        if not source.is_dir() or len(entry) < 3 or entry[1] != "commit":
            continue  # not initialised in the user's checkout either
        commit, submodule = entry[2], target / path
        git(source, "clone", "--quiet", "--shared", "--no-checkout", str(source), str(submodule))
        try:
            git(submodule, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", commit)
        except GitFailed as error:
            raise InputError(
                f"the submodule in {submodule.name} lacks the commit {commit[:12]} ({error}): check that version out "
                "once with `git submodule update --init --recursive`"
            ) from None
        _add_submodules(checkout / path, submodule, source)


def is_unmodified_worktree(version: Version, target: Path) -> bool:
    """Return whether a worktree still matches the commit of `version`, apart from compiled modules."""
    try:
        top, head, *_ = git(target, "rev-parse", "--show-toplevel", "HEAD").split("\n")
        changes = git(target, "status", "--porcelain", "--untracked-files=all", "--", ".", _COMPILED)
    except GitFailed:
        return False
    return Path(top).resolve() == target.resolve() and head == version.digest and not changes.strip()


def remove_worktree(checkout: Path, target: Path) -> None:
    """Remove a worktree and its entry in git's list, even if it is incomplete."""
    shutil.rmtree(target, ignore_errors=True)
    if checkout.is_dir():
        prune_worktrees(checkout)


def prune_worktrees(checkout: Path) -> None:
    """Drop git's entries for worktrees whose folders no longer exist. Raises AccelsweepError if git fails."""
    with _worktree_lock(_common_folder(checkout)):
        git(checkout, "worktree", "prune")
