"""The command line of a supervisor, in a process of its own or in one that the fork server forked."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from accelsweep.base.entry import answer, parser_for
from accelsweep.base.secrets import masked
from accelsweep.base.terminal import escaped
from accelsweep.state.entry import planned_sweep
from accelsweep.supervise.processes.launchers import Launchers
from accelsweep.supervise.standing.prepare import prepare
from accelsweep.supervise.supervisor import supervise


def say(line: str) -> None:
    """Print one line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {escaped(masked(line))}", flush=True)  # noqa: T201 - this is the block's log


def _head_line() -> None:
    """Begin this command's part of the log, which holds those of earlier commands too."""
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"# {when}, process {os.getpid()} on {socket.gethostname()}", flush=True)  # noqa: T201 - this is the block's log


def _prepare(root: Path) -> None:
    del sys.argv[1:]  # a module that reads them as it is imported would take ours for the user's
    os.environ.pop("PYTHONSAFEPATH", None)  # it was for Snakemake, and not for what the user's code starts
    print(f"{len(prepare(planned_sweep(root)))} data modules are ready")  # noqa: T201 - the answer


def main(launchers: Launchers | None = None) -> int:
    """Read the command line, do what it says, return the exit code. `launchers` replaces how ranks are started."""
    parser = parser_for("supervise", __doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("block_file", type=Path, nargs="?", help="sweeps/NAME/blocks/BLOCK.json")
    what.add_argument("--prepare", type=Path, metavar="sweeps/NAME", help="prepare the data of a sweep instead")
    parser.add_argument("--cancel-old", action="store_true", help="end a supervisor that works on this block already")
    arguments = parser.parse_args()
    if arguments.prepare:
        return answer(lambda: _prepare(arguments.prepare))
    _head_line()
    return answer(
        lambda: supervise(arguments.block_file, say=say, launchers=launchers, cancel_old=arguments.cancel_old), tell=say
    )
