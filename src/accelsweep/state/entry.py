"""The sweep that a call of `python -m accelsweep.MODULE` names, in one way."""

from __future__ import annotations

import argparse
from pathlib import Path

from accelsweep.base.entry import parser_for
from accelsweep.state.folders import SweepFolder, existing_sweep


def sweep_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose first argument is `sweep`, the path of a sweep's folder."""
    parser = parser_for(module, description)
    parser.add_argument("sweep", type=Path, metavar="sweeps/NAME", help="the sweep's folder")
    return parser


def planned_sweep(path: Path) -> SweepFolder:
    """Return the planned sweep whose folder is `path`; raise InputError where there is none."""
    folder = SweepFolder.of(path)
    return existing_sweep(folder.home, folder.name)
