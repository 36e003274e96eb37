"""Settings of a site that Slurm, or Snakemake's plugin for it, would refuse only at submission."""

from __future__ import annotations

import re
from collections.abc import Callable

from accelsweep.base.errors import InputError
from accelsweep.core.sites.slurm import Slurm


def refuse_unfit_slurm(slurm: Slurm, where: str, file_of: Callable[[str], str]) -> None:
    """Raise InputError for values that no job could be submitted with.

    `where` is the key of these settings, the site's or a kind's, and `file_of` names the file of a key.
    """
    model = slurm.gpu_model
    allowed = r"[A-Za-z0-9_.-]+" if slurm.gpu_request == "per_node" else r"[A-Za-z0-9_.]+"
    if model is not None and re.fullmatch(allowed, model) is None:
        raise InputError(
            f"{where}.gpu_model={model}: must be letters, digits, '_' and '.' only, because Snakemake's slurm "
            "executor plugin takes no others. For a GPU that `sinfo -o %G` calls otherwise, set "
            f"{where}.gpu_request to per_node. Or set gpu_model to null, and name its nodes by "
            f"{where}.constraint or {where}.partition; look in {file_of(f'{where}.gpu_model')}"
        )
    _refuse_extra(slurm, where, file_of)


def _refuse_extra(slurm: Slurm, where: str, file_of: Callable[[str], str]) -> None:
    """Raise InputError for options that the executor plugin sets itself. It would refuse them only at submission."""
    if not slurm.extra:
        return
    from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

    for pattern, what in get_forbidden_slurm_options().items():
        if re.search(pattern, f"{slurm.extra} "):
            known = _KEYS_FOR.get(what)
            remedy = f"use {known.replace('site.slurm', where)}" if known else "leave it out"
            raise InputError(
                f"{where}.extra={slurm.extra}: must not state the {what}, which Snakemake's slurm executor plugin "
                f"sets itself: {remedy}; look in {file_of(f'{where}.extra')}"
            )


_KEYS_FOR = {
    "account": "site.slurm.account",
    "partition": "site.slurm.partition",
    "memory": "site.slurm.mem_mb",
    "CPUs per task": "threads, or site.slurm.cpus_per_gpu",
    "CPUs per GPU": "site.slurm.cpus_per_gpu",
    "runtime/time limit": "limits.run_seconds and block.size",
    "node constraints": "site.slurm.constraint",
    "quality of service": "site.slurm.qos",
    "number of nodes": "num_nodes",
    "generic resources (GRES)": "devices, and site.slurm.gpu_model",
    "GPU allocation": "devices, and site.slurm.gpu_model",
}
"""The keys of ours for what the plugin calls so."""
