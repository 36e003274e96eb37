"""`python -m accelsweep.executor BLOCK_FILE`: the supervisor of one block, as Snakemake starts it.

`--prepare sweeps/NAME` prepares the sweep's data before the first block. A fork server, where the head runs one, forks
either with torch loaded. Otherwise this process does the work itself.
"""

from __future__ import annotations

import sys

from accelsweep.executor.fork_client import ask


def main() -> int:
    """Have it done; return the exit code."""
    code = ask(sys.argv[1:])
    if code is not None:
        return code
    from accelsweep.executor.block import main as do_it_here  # after the question: it takes 0.3 s to import

    return do_it_here()


if __name__ == "__main__":
    sys.exit(main())
