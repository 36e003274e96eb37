"""Entry point for `python -m accelsweep`. Ctrl-C prints a single line, even while modules are being imported."""

from __future__ import annotations

import sys

from accelsweep.errors import EXIT_INTERRUPTED
from accelsweep.garbage_collection import collect_rarely


def main() -> None:
    """Import the command line and run it."""
    collect_rarely()
    try:
        from accelsweep.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("accelsweep: interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
