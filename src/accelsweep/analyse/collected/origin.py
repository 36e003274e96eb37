"""The origin of the numbers: machines, software, and the digest of the records they were computed from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from accelsweep.analyse.collected.runs import RunRow
from accelsweep.base.documents import canonical_json, sha256_text
from accelsweep.core.findings.findings import Origin
from accelsweep.core.findings.measured import Hardware
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.recorded.hardware import HardwareKind


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
        before = run.surroundings.before
        facts = {
            "system": before.system,
            "python": before.python,
            "cores_usable": before.cores_usable,
            "governor": before.governor,
        }
        for fact, value in facts.items():
            if value is not None:
                seen.setdefault(fact, set()).add(str(value))
    return {name: " and ".join(sorted(values)) for name, values in sorted((found | seen).items())}


def records_digest(runs: Iterable[RunRow]) -> str:
    """Return the SHA-256 over the names of all runs and the SHA-256 of each one's record file."""
    return sha256_text(canonical_json(sorted([run.run or run.cell, run.record_sha256 or ""] for run in runs)))


def origin_of(runs: Sequence[RunRow]) -> Origin:
    """Return model, data, machine, commit and days of the runs that were recorded."""
    known = [run for run in runs if run.recorded]
    before = [run.surroundings.before for run in known]
    changes = {run.checkout.dirty for run in known} - {None}
    days = sorted(run.started_at[:10] for run in known if run.started_at)
    return Origin(
        model=_names(run.config.model_target for run in known if run.config),
        data=_names(run.config.data_target for run in known if run.config),
        threads=tuple(sorted({int(one.cores_usable) for one in before if one.cores_usable})),
        memory_bytes=tuple(sorted({int(one.memory_bytes) for one in before if one.memory_bytes})),
        commits=tuple(sorted({short for run in known if (short := run.checkout.short)})),
        changed=any(changes) if changes else None,
        dates=tuple(dict.fromkeys((days[0], days[-1]))) if days else (),
    )


def _names(targets: Iterable[str]) -> tuple[str, ...]:
    """Return the classes' own names, each once, in alphabetical order."""
    found: Collection[str] = {target.rpartition(".")[2] for target in targets if target}
    return tuple(sorted(found))
