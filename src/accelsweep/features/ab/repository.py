"""The user's git repository, asked through the command `git`. Nothing in it is changed but its list of worktrees."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from accelsweep.config.versions import Tree, Version
from accelsweep.errors import AccelsweepError, InputError, nearest
from accelsweep.files import exclusive_lock
from accelsweep.git import GitFailed, git
from accelsweep.installation import __version__
from accelsweep.measure.machine_state import PACKAGES
from accelsweep.plain_json import canonical_json, sha256_text


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


# Environments as versions: another Python with its own packages, which runs are started with.

_PATIENCE_SECONDS = 120.0


class _Told(TypedDict):
    """An interpreter's account of itself."""

    python: str
    packages: list[tuple[str, str]]


_ASK = """
import importlib.metadata as m, json, sys
found = sorted({(d.metadata["Name"] or "").lower().replace("_", "-"): d.version for d in m.distributions()}.items())
print(json.dumps({"python": sys.version, "packages": found}))
"""


def environments(home: Path, names: Sequence[str]) -> tuple[Tree, ...]:
    """Return what the Pythons at these paths have installed, each as a version.

    Raises InputError for fewer than two, for one that cannot measure, and for two that have the same packages.
    """
    if len(names) < 2:
        raise InputError("--python names an environment, and two or more are needed to compare them: give it twice")
    found = tuple(_environment(home, name) for name in names)
    for number, tree in enumerate(found):
        twin = next((one for one in found[:number] if one.version.digest == tree.version.digest), None)
        if twin is not None:
            raise InputError(
                f"--python {twin.version.name} and {tree.version.name} have the same Python and packages, so there is "
                "nothing to compare"
            )
    return found


def _environment(home: Path, name: str) -> Tree:
    python = (home / Path(name).expanduser()).absolute()  # not resolved: a link tells a venv from its base
    told = _asked(python, name)
    packages = {str(package): str(version) for package, version in told["packages"]}
    ours = packages.get("accelsweep")
    missing = [package for package in ("accelsweep", *PACKAGES) if package not in packages]
    if missing or ours != __version__:
        lacks = f"lacks {' and '.join(missing)}" if missing else f"has accelsweep {ours}"
        raise InputError(
            f"--python {name} {lacks}, and its runs need accelsweep {__version__} with torch and lightning: "
            f"{python} -m pip install accelsweep=={__version__}"
        )
    digest = sha256_text(canonical_json([told["python"], sorted(packages.items())]))
    version = Version(name=name, kind="environment", digest=digest, python=str(python))
    return Tree(version=version, checkout="", place=".", software={"python": told["python"].split()[0], **packages})


def _asked(python: Path, name: str) -> _Told:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(
            [str(python), "-c", _ASK],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_SECONDS,
        )
        found: _Told = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = " ".join(str(getattr(error, "stderr", None) or error).split())
        raise InputError(
            f"--python {name}: {python} did not say what is installed there ({words}); give the path of an "
            "environment's interpreter, such as .venv/bin/python"
        ) from None
    return found


# A commit as a version: a worktree of the user's repository, made by git itself.

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
