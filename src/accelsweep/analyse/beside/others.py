"""The other sweeps that a sweep's claims name, as far as they are there."""

from __future__ import annotations

from accelsweep.analysis.collect import look_up
from accelsweep.analysis.run_results import CellRuns, group, in_order
from accelsweep.core.claims.claims import ClaimFigure
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest


def other_sweeps(folder: SweepFolder, manifest: Manifest) -> dict[str, list[CellRuns]]:
    """Return the runs of each sweep that a figure of these claims names, of those that are there beside `folder`."""
    found = {}
    for name in dict.fromkeys(name for figure in _figures(manifest) for name in figure.named_sweeps):
        other = SweepFolder(folder.home, name)
        if other.manifest.exists():
            plan = Manifest.read(other.manifest)
            found[name] = group(plan, in_order(look_up(other, plan)))
    return found


def _figures(manifest: Manifest) -> list[ClaimFigure]:
    claims = manifest.settings.report.claims
    analogues = [claim.analogue.figures for claim in claims if claim.analogue is not None]
    return [figure for figures in (*(claim.figures for claim in claims), *analogues) for figure in figures]
