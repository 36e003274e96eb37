"""`python -m accelsweep.analyse SWEEP_ROOT`: collect the sweep's records and write its findings.json."""

from __future__ import annotations

import sys
from pathlib import Path

from accelsweep.analyse.analyse import analyse
from accelsweep.analyse.collect import collect
from accelsweep.core.errors import AccelsweepError
from accelsweep.core.plans import Manifest
from accelsweep.state.folders import existing_sweep


def main(arguments: list[str]) -> int:
    """Return the exit code; `arguments` is the sweep's folder, HOME/sweeps/NAME."""
    if len(arguments) != 1:
        print("usage: python -m accelsweep.analyse sweeps/NAME", file=sys.stderr)  # noqa: T201 - a command's answer
        return 2
    root = Path(arguments[0]).resolve()
    try:
        folder = existing_sweep(root.parents[1], root.name)
        findings = analyse(collect(folder), Manifest.read(folder.manifest))
        findings.write(folder.findings)
    except AccelsweepError as error:
        print(f"accelsweep: {error}", file=sys.stderr)  # noqa: T201 - a command's answer
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
