"""The commit of the user's own repository during a run. Never the remote: its address may hold a token."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 10.0


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
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=_PATIENCE_SECONDS,
    )
    return done.stdout.strip()
