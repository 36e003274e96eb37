"""`python -m accelsweep.analyse sweeps/NAME`: collect the sweep's records and write its findings.json."""

from __future__ import annotations

import sys

from accelsweep.analyse.whole import findings_of
from accelsweep.base.entry import answer
from accelsweep.state.entry import planned_sweep, sweep_parser
from accelsweep.state.folders import SweepFolder
from accelsweep.state.stamps import bring_all_back


def main(arguments: list[str] | None = None) -> int:
    """Analyse the sweep named on the command line and return the exit code."""
    root = sweep_parser("analyse", __doc__).parse_args(arguments).sweep
    return answer(lambda: _write_findings(planned_sweep(root)))


def _write_findings(folder: SweepFolder) -> None:
    findings_of(folder).write(folder.findings)
    bring_all_back(folder)


if __name__ == "__main__":
    sys.exit(main())
