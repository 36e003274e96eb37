"""`python -m accelsweep.executor BLOCK_FILE`: the executor of one block, as started by Snakemake.

`--prepare sweeps/NAME` prepares the sweep's data before the first block. If the driver runs a fork server, the work is
done in a process forked from it, with torch already loaded. Otherwise this process does the work itself.
"""

from __future__ import annotations

import os
import sys

from accelsweep.fork_client import run_in_fork_server
from accelsweep.schedulers.job_environment import restore_threads


def main() -> int:
    """Have the fork server do the work, or do it in this process; return the exit code."""
    restore_threads(os.environ)
    code = run_in_fork_server(sys.argv[1:])
    if code is not None:
        return code
    from accelsweep.executor.block import main as run_here  # only if needed: the import takes 0.3 s

    return run_here()


if __name__ == "__main__":
    sys.exit(main())
