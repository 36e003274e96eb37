"""The commit of the user's own repository, or the reason why there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from accelsweep.features.ab.repository import Repository
from accelsweep.git import git_state


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_a_checkout_has_a_commit_and_is_dirty_when_a_tracked_file_changed(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    (tmp_path / "untracked").touch()
    assert git_state(tmp_path) == {"commit": commit, "dirty": False, "reason": None}
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path) == {"commit": commit, "dirty": True, "reason": None}


def test_a_plain_folder_has_a_reason_instead(tmp_path: Path) -> None:
    found = git_state(tmp_path)
    assert (found["commit"], found["dirty"]) == (None, None)
    assert "not a git repository" in found["reason"]


def test_a_repository_without_a_commit_has_a_reason_instead(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    assert git_state(tmp_path) == {"commit": None, "dirty": None, "reason": "nothing has been committed yet"}


def test_a_machine_without_git_has_a_reason_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == {"commit": None, "dirty": None, "reason": "git is not installed"}


def test_a_git_hook_does_not_change_the_recorded_commit(tmp_path: Path, monkeypatch) -> None:
    for name in ("ours", "theirs"):
        folder = tmp_path / name
        folder.mkdir()
        git(folder, "init")
        git(folder, "commit", "--allow-empty", "-m", name)
    ours = git(tmp_path / "ours", "rev-parse", "HEAD").strip()
    theirs = str(tmp_path / "theirs" / ".git")
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"):  # the first by any hook, the others by worktrees
        monkeypatch.setenv(name, theirs if name != "GIT_OBJECT_DIRECTORY" else f"{theirs}/objects")
    monkeypatch.setenv("GIT_INDEX_FILE", f"{theirs}/index.lock")
    assert git_state(tmp_path / "ours") == {"commit": ours, "dirty": False, "reason": None}
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path))
    assert git_state(tmp_path / "ours")["commit"] == ours
    assert Repository.around(tmp_path / "ours").checkout == tmp_path / "ours"
