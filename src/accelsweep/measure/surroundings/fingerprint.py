"""The facts that must be equal for an old record to stand for a new run. Made without torch or CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

from accelsweep.core.recorded.record import Fingerprint
from accelsweep.machine.cpu import cpu_model
from accelsweep.machine.devices import hardware

PACKAGES = ("torch", "lightning")
"""Packages whose public version is part of the fingerprint."""


def fingerprint(
    sources: Mapping[str, str], accelerator: str | None = None, software: Mapping[str, str] | None = None
) -> Fingerprint:
    """Return this machine's fingerprint for runs on `accelerator`; `sources` are the digests of the user's packages.

    For `cpu` the GPUs of the machine are left out. So the same nodes with and without a granted GPU are one hardware.
    None takes the devices of every kind. `software` are the versions of an environment that runs are started with;
    None or none takes those of this one.
    """
    versions = {package: (software or {}).get(package) or metadata.version(package) for package in PACKAGES}
    split = {package: version.partition("+") for package, version in versions.items()}
    return Fingerprint(
        hardware={"host": cpu_model(), **hardware(accelerator)},
        software={package: public for package, (public, _, _) in split.items()},
        builds={package: tag for package, (_, _, tag) in split.items() if tag},
        sources=dict(sources),
    )
