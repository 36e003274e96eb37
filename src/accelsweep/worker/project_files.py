"""Records which files below a folder this process reads, whether by importing, opening or executing them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

MOST_FILES = 5000
"""The maximum number of files recorded, because a data set may consist of millions."""

_FOREIGN = frozenset({"sweeps", "reports", "mlruns", "mlartifacts", "site-packages", "dist-packages", "wandb"})
"""Folders of results or installed packages, whose files are ignored, as are those in hidden folders."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class ProjectFiles:
    """The files below `folder` that are read before `stop` is called, as paths relative to the folder."""

    def __init__(self, folder: Path) -> None:
        """Start recording. The audit hook remains for the life of the process, but does nothing after `stop`."""
        self._folder = str(folder.resolve())
        self._prefix = f"{self._folder}{os.sep}"
        self._noting = True
        self._paths: set[str] = set()
        sys.addaudithook(self._on_event)

    def stop(self) -> None:
        """Stop recording."""
        self._noting = False

    def paths(self) -> tuple[str, ...]:
        """Return the recorded files that still exist, sorted."""
        found = (path for path in self._paths if os.path.isfile(self._prefix + path))  # noqa: PTH113  thousands of paths
        return tuple(sorted(found))

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._noting or event != "open" or len(self._paths) >= MOST_FILES:
            return
        path, mode, flags = arguments
        if not isinstance(path, str | bytes | os.PathLike) or _writes(mode, flags):
            return
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  called for every file that is opened
        if text.startswith(self._prefix):
            self._note(text)

    def _note(self, path: str) -> None:
        if path.endswith(".pyc"):
            try:
                path = importlib.util.source_from_cache(path)
            except ValueError:
                return
        relative = path.removeprefix(self._prefix)
        if not any(folder in _FOREIGN or folder.startswith(".") for folder in Path(relative).parent.parts):
            self._paths.add(relative)


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return not set(mode).isdisjoint("wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)
