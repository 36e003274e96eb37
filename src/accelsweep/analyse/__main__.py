"""`python -m accelsweep.analyse sweeps/NAME`: collect the sweep's records and write its findings.json."""

from __future__ import annotations

import sys

from accelsweep.analyse.analyse import analyse
from accelsweep.analyse.collect import collect
from accelsweep.analyse.others import other_sweeps
from accelsweep.core.plans import Manifest
from accelsweep.state.entry import answer, planned_sweep, sweep_parser
from accelsweep.state.folders import SweepFolder
from accelsweep.state.stamps import bring_all_back


def main(arguments: list[str] | None = None) -> int:
    """Analyse the sweep named on the command line and return the exit code."""
    root = sweep_parser("analyse", __doc__).parse_args(arguments).sweep
    return answer(lambda: _write_findings(planned_sweep(root)))


def _write_findings(folder: SweepFolder) -> None:
    manifest = Manifest.read(folder.manifest)
    analyse(collect(folder), manifest, others=other_sweeps(folder, manifest)).write(folder.findings)
    bring_all_back(folder)


if __name__ == "__main__":
    sys.exit(main())
