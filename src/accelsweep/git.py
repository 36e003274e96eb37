"""Reads the user's git repository through the `git` command.

The remote is never contacted or recorded: its URL may contain a token.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from accelsweep.errors import AccelsweepError, InputError

_STATE_TIMEOUT_SECONDS = 10.0

_TIMEOUT_SECONDS = 600.0

_COMMIT_LINE = "# branch.oid "

_REPOSITORY_VARIABLES = re.compile(
    "GIT_(DIR|WORK_TREE|IMPLICIT_WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|PREFIX"
    "|NAMESPACE|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE|NO_REPLACE_OBJECTS|EXTERNAL_DIFF|[A-Z]+_PATHSPECS)"
)
"""Variables set by hooks and `git rebase --exec` that would make git use a repository other than the folder's own.

GIT_CONFIG_* are kept: they may declare a group's repository safe."""


class GitFailed(AccelsweepError):
    """A git command failed; the message includes git's error message."""


def git_state(folder: Path) -> dict[str, Any]:
    """Return `commit` and `dirty` for the checkout containing `folder`, or None for both and a `reason`."""
    try:
        done = _run(folder, _STATE_TIMEOUT_SECONDS, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    except FileNotFoundError:
        return _no_commit("git is not installed")
    except subprocess.TimeoutExpired:
        return _no_commit(f"git timed out after {_STATE_TIMEOUT_SECONDS:g} s")
    if done.returncode:
        return _no_commit(next(iter(done.stderr.decode("utf-8", "replace").strip().splitlines()), "git failed"))
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    (commit,) = (line.removeprefix(_COMMIT_LINE) for line in lines if line.startswith(_COMMIT_LINE))
    if commit == "(initial)":
        return _no_commit("nothing has been committed yet")
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines), "reason": None}


def _no_commit(reason: str) -> dict[str, Any]:
    return {"commit": None, "dirty": None, "reason": reason}


def git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command run in `folder`. Raises GitFailed, or InputError if git is not installed."""
    try:
        done = _run(folder, _TIMEOUT_SECONDS, "-c", "core.quotePath=false", *arguments)
    except FileNotFoundError:
        raise InputError("git is not installed, but comparing commits requires it: install git") from None
    except subprocess.TimeoutExpired:
        timeout = f"git {arguments[0]} timed out after {_TIMEOUT_SECONDS:g} s in {folder}"
        raise GitFailed(f"{timeout}: run it there manually and check the disk") from None
    if done.returncode:
        message = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise GitFailed(f"git {arguments[0]} failed in {folder}: {message.removeprefix('fatal: ') or done.returncode}")
    return os.fsdecode(done.stdout)


def _run(folder: Path, timeout: float, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {name: value for name, value in os.environ.items() if not _REPOSITORY_VARIABLES.fullmatch(name)}
    return subprocess.run(
        ["git", *arguments],  # noqa: S607 - the user's own git, wherever it is installed
        cwd=folder,
        env={**inherited, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=timeout,
    )
