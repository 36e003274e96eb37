"""Training projects as other people write them (tests/projects), copied for one test."""

from __future__ import annotations

import shutil
from pathlib import Path

PROJECTS = Path(__file__).resolve().parents[1] / "projects"


def copy_project(name: str, home: Path) -> Path:
    """Copy a project to `home`; return `home`."""
    shutil.copytree(PROJECTS / name, home, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return home
