"""The commit of the user's own repository during a run. Never the remote: its address may hold a token."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelsweep.errors import AccelsweepError, InputError

_PATIENCE_SECONDS = 10.0


_OF_A_REPOSITORY = re.compile(
    "GIT_(DIR|WORK_TREE|IMPLICIT_WORK_TREE|INDEX_FILE|COMMON_DIR|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES|PREFIX"
    "|NAMESPACE|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE|NO_REPLACE_OBJECTS|EXTERNAL_DIFF|[A-Z]+_PATHSPECS)"
)
"""Variables that a hook or `git rebase --exec` sets, and by which git would tell of another repository than the one
around a folder. Those of its config (GIT_CONFIG_*) stay: they may say that a group's repository is safe."""


def of_the_folder(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a git that looks at the repository around its working directory, and changes nothing."""
    kept = {name: value for name, value in variables.items() if not _OF_A_REPOSITORY.fullmatch(name)}
    return {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def git_state(folder: Path) -> dict[str, Any]:
    """Return `commit` and `dirty` of the checkout around `folder`; without one, `commit` null and the `reason`."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except FileNotFoundError:
        return {"commit": None, "dirty": None, "reason": "git is not installed"}
    except subprocess.CalledProcessError as error:
        first = (error.stderr.strip().splitlines() or ["git failed"])[0]
        return {"commit": None, "dirty": None, "reason": first}
    except subprocess.TimeoutExpired:
        return {"commit": None, "dirty": None, "reason": f"git gave no answer within {_PATIENCE_SECONDS:g} s"}
    return {"commit": commit, "dirty": bool(changes), "reason": None}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],  # noqa: S607 - the user's own git, wherever it is installed
        cwd=folder,
        env=of_the_folder(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_SECONDS,
    )
    return done.stdout.strip()


# The user's git repository, asked through the command `git`. Nothing in it is changed but its list of worktrees.

_GIT_SECONDS = 600.0


class GitFailed(AccelsweepError):
    """Git ended with an error; the message holds its own words."""


def git(folder: Path, *arguments: str) -> str:
    """Return the output of git in `folder`. Raises GitFailed, InputError where git is not installed."""
    command = ["git", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=of_the_folder(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
        )
    except FileNotFoundError:
        raise InputError("git is not installed, and `ab` compares commits of a git repository: install git") from None
    except subprocess.TimeoutExpired:
        silent = f"git {arguments[0]} gave no answer within {_GIT_SECONDS:g} s in {folder}"
        raise GitFailed(f"{silent}: try the same there by hand, and look at its disk") from None
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise GitFailed(f"git {arguments[0]} failed in {folder}: {words.removeprefix('fatal: ') or done.returncode}")
    return os.fsdecode(done.stdout)
