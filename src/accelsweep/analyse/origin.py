"""The origin of the numbers: machines, software, and the digest of the records they were computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from accelsweep.analyse.hardware import HardwareKind
from accelsweep.analyse.runs import RunRow
from accelsweep.base.documents import canonical_json, sha256_text
from accelsweep.core.findings import Hardware
from accelsweep.core.plans import Manifest

_HOST_FACTS = ("system", "python", "cores_usable", "governor")


def hardware_of(names: Mapping[HardwareKind, str]) -> tuple[Hardware, ...]:
    """Return the kinds of hardware that runs used, by name in alphabetical order."""
    return tuple(Hardware(name=name, details=kind.details) for kind, name in sorted(names.items(), key=lambda i: i[1]))


def environment(manifest: Manifest, runs: Iterable[RunRow]) -> dict[str, str]:
    """Return the environment of the runs: versions with build tags, system, governor; several values are joined."""
    found: dict[str, set[str]] = {name: {version} for name, version in manifest.versions.items()}
    seen: dict[str, set[str]] = {}
    for run in runs:
        for package, version in run.software.items():
            tag = run.builds.get(package)
            seen.setdefault(package, set()).add(f"{version}+{tag}" if tag else version)
        before = run.environment.get("before", {})
        for fact in _HOST_FACTS:
            if before.get(fact) is not None:
                seen.setdefault(fact, set()).add(str(before[fact]))
    return {name: " and ".join(sorted(values)) for name, values in sorted((found | seen).items())}


def records_digest(runs: Iterable[RunRow]) -> str:
    """Return the SHA-256 over the names of all runs and the SHA-256 of each one's record file."""
    return sha256_text(canonical_json(sorted([run.run or run.cell, run.record_sha256 or ""] for run in runs)))
