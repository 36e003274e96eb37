"""`python -m accelsweep.report SWEEP_ROOT`: write the report of the sweep in this folder and print the page's path."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accelsweep.core.errors import AccelsweepError
from accelsweep.state.folders import SweepFolder


def main(arguments: list[str] | None = None) -> int:
    """Write the report and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m accelsweep.report", description=__doc__)
    parser.add_argument("sweep_root", type=Path, help="the folder sweeps/NAME")
    root: Path = parser.parse_args(arguments).sweep_root.resolve()
    from accelsweep.report.write import write_report

    try:
        page = write_report(SweepFolder(root.parents[1], root.name))
    except AccelsweepError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{page}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
