"""Generates one API page per folder of the package; mkdocstrings fills it from the docstrings."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from sources import trees


def pages() -> dict[str, str]:
    """Return the pages in Markdown, keyed by file name and ordered by folder."""
    folders: dict[Path, list[Path]] = defaultdict(list)
    for path in trees():
        folders[path.parent].append(path)
    return {f"{_name(folder)}.md": _page(folder, modules) for folder, modules in sorted(folders.items())}


def _name(folder: Path) -> str:
    return ".".join(["accelsweep", *folder.parts])


def _page(folder: Path, modules: list[Path]) -> str:
    about = ast.get_docstring(trees().get(folder / "__init__.py", ast.Module([], []))) or ""
    listed = [path for path in modules if path.name not in ("__init__.py", "__main__.py")]
    names = [".".join(["accelsweep", *path.with_suffix("").parts]) for path in listed]
    return f"# {_name(folder)}\n\n{about}\n\n" + "\n".join(f"::: {name}\n" for name in names)
