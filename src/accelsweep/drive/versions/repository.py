"""The user's git repository, asked through the command `git`. Nothing in it is changed but its list of worktrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.versions import Version
from accelsweep.errors import InputError, nearest
from accelsweep.git import GitFailed, git


@dataclass(frozen=True)
class Repository:
    """A repository by the folder of its checkout, and the working directory's `place` in it."""

    checkout: Path
    place: str

    @classmethod
    def around(cls, home: Path) -> Repository:
        """Return the repository that `home` lies in. Raises InputError where there is none, or none with a checkout."""
        try:
            checkout = git(home, "rev-parse", "--show-toplevel").removesuffix("\n")
        except GitFailed as error:
            raise InputError(
                f"{home} lies in no checkout of a git repository ({error}): `ab` compares its commits. Begin with "
                "`git init`, and commit your modules and conf/"
            ) from None
        place = home.resolve().relative_to(Path(checkout).resolve())
        return cls(Path(checkout), place.as_posix())

    def version(self, name: str) -> Version:
        """Return the commit that a branch, a tag, a hash or `HEAD~2` stands for. Raises InputError for other words."""
        try:
            commit = git(self.checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitFailed:
            raise InputError(self._why_unknown(name)) from None
        return Version(name=name, kind="commit", digest=commit.strip())

    def _why_unknown(self, name: str) -> str:
        if not self._has("rev-parse", "--verify", "--quiet", "HEAD"):
            return f"{name}: {self.checkout} has no commit yet, so there is nothing to compare: commit first"
        unknown = f"{name}: {self.checkout} has no such commit"
        if git(self.checkout, "rev-parse", "--is-shallow-repository").strip() == "true":
            return (
                f"{unknown}, and it is a shallow clone: fetch the rest with `git fetch --unshallow` "
                "(in a workflow: fetch-depth: 0)"
            )
        short = git(self.checkout, "for-each-ref", "--format=%(refname:short)").split("\n")
        return f"{unknown}{nearest(name, short)}. An override is KEY=VALUE; all other words are commits"

    def _has(self, *arguments: str) -> bool:
        try:
            git(self.checkout, *arguments)
        except GitFailed:
            return False
        return True

    def files(self, folder: Path, *kind: str) -> Iterator[Path]:
        """Yield the paths of the files that `git ls-files` lists below `folder`, those of submodules too."""
        for name in filter(None, git(folder, "ls-files", "-z", *kind).split("\0")):
            path = folder / name
            if path.is_dir() and not path.is_symlink():  # a submodule, or a repository that nobody has added
                if (path / ".git").exists() and kind[0] == "--cached":
                    yield from self.files(path, "--cached")
                    yield from self.files(path, "--others", "--exclude-standard")
                continue
            yield path
