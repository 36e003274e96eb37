"""Options of qsub that a site may not state: a job is found, followed and put in turn by them."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from accelsweep.config.site import GridEngine
from accelsweep.errors import InputError

_OURS = {
    "-N": "the job's name, by which the head finds it",
    "-o": "the job's log, which tells how it ended",
    "-e": "the job's log, which tells how it ended",
    "-j": "the job's log, which tells how it ended",
    "-terse": "the answer, in which Snakemake reads the job's number",
    "-t": "the answer, in which Snakemake reads the job's number",
    "-sync": "the answer, in which Snakemake reads the job's number",
    "-r": "whether a lost job is queued again, which Snakemake does",
    "-hold_jid": "the jobs that it waits for, which keep their turn with site.grid_engine.exclusive=false",
    "-cwd": "the folder, to which all paths of a block belong",
    "-wd": "the folder, to which all paths of a block belong",
}


def refuse_unfit_grid_engine(settings: GridEngine, file_of: Callable[[str], str]) -> None:
    """Raise InputError for options in `extra` that we set ourselves; `file_of` names the file of a key.

    They come behind ours, and of two alike qsub takes the last.
    """
    try:
        words = shlex.split(settings.extra or "")
    except ValueError as error:
        words, why = [], f"is no shell's words ({error})"
    else:
        why = next((f"must not state {word}, {_OURS[word]}: leave it out" for word in words if word in _OURS), "")
    if why:
        raise InputError(f"site.grid_engine.extra={settings.extra}: {why}; look in {file_of('site.grid_engine.extra')}")
