"""`accelsweep init`: a commented model, its data, an experiment and a test that run at once, there to be changed."""

from __future__ import annotations

import shlex
from pathlib import Path

from accelsweep.base.documents import write_bytes_atomically
from accelsweep.base.errors import InputError
from accelsweep.base.shipped import shipped_root
from accelsweep.drive.terminal.console import say

STARTER_FILES = ("conf/experiment/mine.yaml", "my_model.py", "test_my_model.py")


def write_starter(folder: Path) -> None:
    """Write the starter into `folder`, made if need be. Raises InputError, and writes nothing, if a file is there."""
    taken = [name for name in STARTER_FILES if (folder / name).exists()]
    if taken or (folder.exists() and not folder.is_dir()):
        what = f"{', '.join(taken)} in {folder}" if taken else str(folder)
        raise InputError(f"{what} would be overwritten, so nothing was written; try: accelsweep init ANOTHER_FOLDER")
    for name in STARTER_FILES:
        write_bytes_atomically(folder / name, (shipped_root() / "starter" / name).read_bytes())
        say(f"wrote {folder / name}")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"now: {there}accelsweep run experiment=mine")
