"""What Slurm, or Snakemake's plugin for it, refuses at submission, and the keys that its words are about."""

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

_FULL = re.compile(r"\b(?:Assoc|QOS)\w*(?:Max|Grp)Submit\w*")
"""Reasons for a job too many in the queue: AssocMaxSubmitJobLimit, QOSMaxSubmitJobPerUserLimit and their like."""

_NO_ANSWER = re.compile(
    r"Unable to contact|[Tt]imed out|did not answer|Connection refused|[Cc]ommunication|[Tt]emporarily|"
    r"Zero Bytes|in progress|Transport endpoint"
)
_POLICY = re.compile(r"Job violates accounting/QOS policy \([^)]*\)")
"""Slurm's sentence about any limit of accounts. The word of the limit itself precedes it since Slurm 22.05."""

_KEYS = (
    (_FULL, ("max_jobs",)),
    (re.compile(r"\b[Aa]ccount(?!ing)|InvalidAccount|AccountNotAllowed"), ("account",)),
    (
        re.compile(r"partition name|[Ii]nvalid partition|this partition|account/partition|Partition(?!Time|Node)"),
        ("partition",),
    ),
    (re.compile(r"qos spec|qos not|InvalidQOS|QOSNotAllowed|QOSMin", re.IGNORECASE), ("qos",)),
    (re.compile(r"time ?limit(?!s)|Wall|MinutesPerJob", re.IGNORECASE), ("max_minutes",)),
    (re.compile(r"mem(?:ory)?(?![a-z])|MemoryPer|MaxMem", re.IGNORECASE), ("mem_mb",)),
    (re.compile(r"gres|TRES|gpu|generic resource", re.IGNORECASE), ("gpu_model", "max_gpus")),
    (re.compile(r"node configuration", re.IGNORECASE), ("gpu_model", "cpus_per_gpu", "mem_mb", "constraint")),
    (re.compile(r"feature|constraint", re.IGNORECASE), ("constraint",)),
    (re.compile(r"cpus?(?![a-z])|processor|MaxCpu|MinCpu", re.IGNORECASE), ("cpus_per_gpu",)),
    (re.compile(r"reservation", re.IGNORECASE), ("extra",)),
)


def full(words: str) -> str | None:
    """Return the limit on submitted jobs, of a user, account or QOS, for which Slurm refused one; None for others."""
    found = _FULL.search(words)
    return found[0] if found else None


def no_answer(words: str) -> bool:
    """Return whether Slurm did not refuse a job but could not be asked."""
    return _NO_ANSWER.search(words) is not None


def keys_for(words: str) -> tuple[str, ...]:
    """Return the keys of `Slurm` that a refusal, or the reason of a job that waits, is about; none where none fits."""
    words = _POLICY.sub("", words).strip(" ;") or words
    return tuple(dict.fromkeys(key for pattern, keys in _KEYS if pattern.search(words) for key in keys))
