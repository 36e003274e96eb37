"""`python -m accelsweep.executor.fork_server DESCRIPTOR`: imports torch once and forks an executor for each block.

DESCRIPTOR is a socket on which the driver already listens, so an early client simply waits for the imports to finish.
The server never imports user code, has no state, and dies with the driver. An executor ends with the job that requested
it, not with the driver. The driver itself requests the processes that compose the config of the user's own project and
that try its script, which import what the server has imported.
"""

from __future__ import annotations

import contextlib
import socket
import sys

from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.executor import trial
from accelsweep.executor.block import main as run_executor
from accelsweep.executor.launch import Launcher, preload
from accelsweep.planning.source_digests import core_versions
from accelsweep.worker import project_config
from accelsweep.worker.fork_requests import ForkServer
from accelsweep.worker.forking import UnsafeFork

_MAINS = {
    "accelsweep.executor": lambda: run_executor(Launcher(safe=True)),
    "accelsweep.executor.trial": trial.main,
    "accelsweep.worker.project_config": project_config.main,
}


def main() -> int:
    """Serve until killed; return an exit code immediately if forking is not safe."""
    try:
        ForkServer(_MAINS, core_versions).serve(socket.socket(fileno=int(sys.argv[1])), preload)
    except UnsafeFork as error:
        sys.stderr.write(f"forking is not safe here ({error}); every block imports torch itself\n")
    return EXIT_INCOMPLETE


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
