"""One setting of a sweep, as somebody typed it: its name in files or the beginning of it, its words, or its values."""

from __future__ import annotations

from accelsweep.base.errors import InputError, nearest
from accelsweep.core.cells.cell import as_typed, in_words, label
from accelsweep.core.planned.plans import Manifest, PlannedCell
from accelsweep.state.folders import SweepFolder


def full_name(folder: SweepFolder, typed: str) -> str:
    """Return the name of the one runnable setting that `typed` means: `3f2a`, `cpu x2 | batch 32` or `batch_size=32`.

    Raises InputError if there is none or several, with the nearest one.
    """
    cells = Manifest.read(folder.manifest).cells
    runnable = [cell for cell in cells if cell.unsupported is None]
    matching = [cell for cell in runnable if cell.name.startswith(typed)]
    matching = matching or [cell for cell in runnable if typed in _words(cell) or _has_values(cell, typed)]
    if len(matching) == 1:
        return matching[0].name
    ruled_out = [cell.unsupported for cell in cells if cell.unsupported is not None and cell.name == typed]
    if ruled_out:
        raise InputError(f"setting {typed!r} of {folder.name!r} is unsupported: {ruled_out[0]}")
    found = "is the beginning of several" if matching else "names no runnable setting"
    words = [word for cell in runnable for word in (cell.name, *_words(cell))]
    near = "" if matching else nearest(typed, words)
    listed = "; ".join(f"{cell.name} ({label(cell.axes)})" for cell in matching or runnable)
    raise InputError(f"{typed!r} {found}{near}; the runnable settings of {folder.name!r} are: {listed}")


def _words(cell: PlannedCell) -> tuple[str, str]:
    return label(cell.axes), in_words(cell.axes)


def _has_values(cell: PlannedCell, typed: str) -> bool:
    """Return whether `typed` is `KEY=VALUE`, or several with spaces or commas between, and the setting has them all."""
    wanted = [part.partition("=") for part in typed.replace(",", " ").split()]
    axes = {key: as_typed(value) for key, value in cell.axes.items()}
    return bool(wanted) and all(axes.get(key) == value for key, _, value in wanted)
