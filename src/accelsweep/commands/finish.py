"""The end of the road with whatever there is: collect, analyse, report. Missing runs become `not_run` rows."""

from __future__ import annotations

import sys
from pathlib import Path

from accelsweep.core.folders import SweepFolder, existing_sweep
from accelsweep.core.plans import Manifest


def finish(folder: SweepFolder) -> Path:
    """Write the sweep's records.parquet, findings.json and report; return the path of the page."""
    from accelsweep.analyse.analyse import analyse
    from accelsweep.analyse.collect import collect
    from accelsweep.report.write import write_report

    manifest = Manifest.read(folder.manifest)
    analyse(collect(folder), manifest).write(folder.findings)
    return write_report(folder)


if __name__ == "__main__":
    _root = Path(sys.argv[1]).resolve()
    sys.stdout.write(f"{finish(existing_sweep(_root.parents[1], _root.name))}\n")
