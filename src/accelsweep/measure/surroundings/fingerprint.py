"""What must be equal for an old record to stand for a new run. Made without importing torch or touching CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata

from accelsweep.core.record import Fingerprint
from accelsweep.machine.nvml import NoNvml, ask, nvml, text
from accelsweep.machine.processor import cpu_model

PACKAGES = ("torch", "lightning")
"""Packages whose public version is part of the fingerprint."""


def fingerprint(sources: Mapping[str, str], accelerator: str | None = None) -> Fingerprint:
    """Return this machine's fingerprint for runs on `accelerator`; `sources` are the digests of the user's packages.

    For `cpu` the GPUs of the machine are left out, so that the same nodes with and without a granted GPU are one
    hardware; None takes whatever NVML shows.
    """
    versions = {package: metadata.version(package) for package in PACKAGES}
    split = {package: version.partition("+") for package, version in versions.items()}
    return Fingerprint(
        hardware={"host": cpu_model(), **({} if accelerator == "cpu" else gpus())},
        software={package: public for package, (public, _, _) in split.items()},
        builds={package: tag for package, (_, _, tag) in split.items() if tag},
        sources=dict(sources),
    )


def gpus() -> dict[str, str]:
    """Return the models and the driver of the NVIDIA devices as `device` and `driver`; empty where there are none."""
    try:
        with nvml() as library:
            count = ask(library.nvmlDeviceGetCount)
            handles = [ask(library.nvmlDeviceGetHandleByIndex, index) for index in range(count)]
            models = sorted({text(ask(library.nvmlDeviceGetName, handle)) for handle in handles})
            driver = text(ask(library.nvmlSystemGetDriverVersion))
    except NoNvml:
        return {}
    return {"device": ", ".join(models), "driver": driver} if models else {}
