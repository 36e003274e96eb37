"""`python -m accelsweep.supervise BLOCK_FILE`: the supervisor of one block, as Snakemake starts it.

A fork server, where the head runs one, forks it with torch loaded. Otherwise this process is the supervisor itself.
"""

from __future__ import annotations

import sys

from accelsweep.supervise.fork_server.client import ask


def main() -> int:
    """Have the block supervised; return the exit code."""
    code = ask(sys.argv[1:])
    if code is not None:
        return code
    from accelsweep.supervise.command import main as supervise_here  # after the question: it takes 0.3 s to import

    return supervise_here()


if __name__ == "__main__":
    sys.exit(main())
