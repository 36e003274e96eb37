"""`python -m accelsweep.supervise BLOCK_FILE`: the supervisor of one block, as Snakemake starts it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from accelsweep.core.errors import AccelsweepError
from accelsweep.core.secrets import masked
from accelsweep.core.terminal import escaped
from accelsweep.state.entry import answer, parser_for
from accelsweep.supervise.disk import refusal
from accelsweep.supervise.processes.launchers import Launchers
from accelsweep.supervise.supervisor import supervise


def say(line: str) -> None:
    """Print one line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {escaped(masked(line))}", flush=True)  # noqa: T201 - this is the block's log


def main(launchers: Launchers | None = None) -> int:
    """Read the command line, supervise the block, return the exit code. `launchers` replaces how ranks are started."""
    parser = parser_for("supervise", __doc__)
    parser.add_argument("block_file", type=Path, help="sweeps/NAME/blocks/BLOCK.json")
    parser.add_argument("--cancel-old", action="store_true", help="end a supervisor that works on this block already")
    arguments = parser.parse_args()
    return answer(lambda: _supervise(arguments, launchers), tell=say)


def _supervise(arguments: argparse.Namespace, launchers: Launchers | None) -> int:
    try:
        return supervise(arguments.block_file, say=say, launchers=launchers, cancel_old=arguments.cancel_old)
    except OSError as error:
        if (message := refusal(error, arguments.block_file)) is None:
            raise
        raise AccelsweepError(message) from None


if __name__ == "__main__":
    sys.exit(main())
