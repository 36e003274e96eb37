"""`python -m accelsweep.report sweeps/NAME`: write the report of the sweep in this folder and print the page's path."""

from __future__ import annotations

import sys

from accelsweep.base.entry import answer
from accelsweep.report.write import write_report
from accelsweep.state.entry import sweep_parser
from accelsweep.state.folders import SweepFolder
from accelsweep.state.stamps import bring_all_back


def main(arguments: list[str] | None = None) -> int:
    """Write the report, which needs the findings alone, and return the exit code."""
    root = sweep_parser("report", __doc__).parse_args(arguments).sweep
    return answer(lambda: _write(SweepFolder.of(root)))


def _write(folder: SweepFolder) -> None:
    print(write_report(folder))  # noqa: T201 - a command's answer
    bring_all_back(folder)


if __name__ == "__main__":
    sys.exit(main())
