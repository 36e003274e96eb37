"""`accelsweep clean`: delete one sweep's folders, after asking."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.drive.head import refuse_while_run
from accelsweep.drive.terminal.console import say
from accelsweep.drive.versions.trees import remove_trees
from accelsweep.state.folders import existing_sweep


def delete_sweep(home: Path, name: str, ask: Callable[[str], bool] | None) -> None:
    """Delete `sweeps/NAME` and `reports/NAME`; `ask` gets the question, None means do not ask.

    Raises InputError where one of them is a link.
    """
    folder = existing_sweep(home, name)
    refuse_while_run(folder)
    for path in (folder.root, folder.report):
        if path.is_symlink():
            raise InputError(f"{path} is a link to {path.readlink()}: remove the link, and what it leads to, yourself")
    doomed = [path for path in (folder.root, folder.report) if path.exists()]
    records = len(folder.records_on_top())
    question = f"delete {' and '.join(str(path) for path in doomed)} with {records} records?"
    if ask is not None and not ask(question):
        say("nothing was deleted")
        return
    remove_trees(folder)
    for path in doomed:
        shutil.rmtree(path)
        say(f"deleted {path}")
