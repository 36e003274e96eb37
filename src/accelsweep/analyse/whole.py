"""All findings of a sweep's folder: of its records, with the other sweeps that claims name, and its profiles beside."""

from __future__ import annotations

from accelsweep.analyse.analyse import analyse
from accelsweep.analyse.beside.others import other_sweeps
from accelsweep.analyse.beside.profiles import with_profiles
from accelsweep.analyse.collected.collect import collect
from accelsweep.core.findings.findings import Findings
from accelsweep.core.planned.plans import Manifest
from accelsweep.state.folders import SweepFolder


def findings_of(folder: SweepFolder) -> Findings:
    """Collect the sweep's records, write them as one table, and return the findings."""
    manifest, runs = Manifest.read(folder.manifest), collect(folder)
    found = analyse(runs, manifest, others=other_sweeps(folder, manifest))
    return with_profiles(found, folder, runs, manifest)
