"""A block's resources in the words of Snakemake's slurm executor plugin (2.8), which turns them into sbatch options.

What the plugin does with them decides the shape: `gpu` goes with `nodes=1`, or Slurm may split the GPUs over nodes;
`threads` would be capped at the login node's own cores, `cpus_per_task` is not.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from accelsweep.core.plans import Resources, Site, Slurm

Value = str | int | None

LEAST_MEM_MB = 1500
"""Memory below which a job cannot even start: its two Snakemakes were seen to die below 600 MB, torch comes on top."""

RESTARTS_VARIABLE = "ACCELSWEEP_RESTARTS"
"""Carries SLURM_RESTART_COUNT past the jobstep plugin, which takes SLURM_* from what it starts."""


def job_resources(needs: Resources, slurm: Slurm) -> dict[str, Value]:
    """Return what Snakemake's rule states for a block with these `needs`; None leaves an option out of sbatch's call.

    `runtime` is in minutes, `mem_mb` per node, `gpu` the sum over all nodes (or 0).
    """
    return {
        "slurm_partition": _partition(needs, slurm),
        "slurm_account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "runtime": needs.minutes,
        "mem_mb": needs.mem_mb,
        "nodes": needs.nodes,
        "cpus_per_task": needs.cpus,
        "gpu": needs.gpus,
        "gpu_model": needs.gpu_model if needs.gpus else None,
        "slurm_extra": " ".join(["--exclusive"] * slurm.exclusive + [slurm.extra or ""]).strip(),
    }


def before_block(slurm: Slurm) -> str:
    """Return the shell commands that prepare a node for a block, each followed by ` && `."""
    commands = [f'export SLURM_RESTART_COUNT="${{{RESTARTS_VARIABLE}:-0}}"']
    commands += [f"module load {shlex.quote(module)}" for module in slurm.modules]
    if slurm.scratch:
        commands += [f"mkdir -p {shlex.quote(slurm.scratch)}", f"export TMPDIR={shlex.quote(slurm.scratch)}"]
    return "".join(f"{command} && " for command in commands)


def in_words(needs: Resources, slurm: Slurm) -> str:
    """Return one job's size for a reader: `1 node, 8 CPUs, 4 GPUs (h100), 64000 MB, 24 minutes, partition gpu`."""
    parts = [f"{needs.nodes} node{'s' if needs.nodes > 1 else ''}", f"{needs.cpus} CPUs per node"]
    if needs.gpus:
        parts.append(f"{needs.gpus} GPUs" + (f" ({needs.gpu_model})" if needs.gpu_model else ""))
    parts += [f"{needs.mem_mb} MB"] if needs.mem_mb else []
    parts += [f"at most {needs.minutes} minutes"] if needs.minutes else []
    partition = _partition(needs, slurm)
    return ", ".join([*parts, f"partition {partition}" if partition else "the default partition"])


def _partition(needs: Resources, slurm: Slurm) -> str | None:
    return slurm.partition if needs.gpus else slurm.cpu_partition or slurm.partition


def bounds(site: Site) -> dict[str, tuple[Any, bool, str]]:
    """Return, for each key of `site.slurm` that has a range, its value, whether it is in it, and the range in words."""
    slurm = site.slurm
    least = f"at least {LEAST_MEM_MB} (each job runs two Snakemakes and a supervisor beside its runs), or null"
    plain = slurm.gpu_model is None or re.fullmatch(r"[A-Za-z0-9_.]+", slurm.gpu_model) is not None
    unlike = "false where jobs go to Slurm: the machine that plans is not the one that measures"
    return {
        "site.probe": (site.probe, not site.probe or site.scheduler == "local", unlike),
        "site.slurm.mem_mb": (slurm.mem_mb, slurm.mem_mb is None or slurm.mem_mb >= LEAST_MEM_MB, least),
        "site.slurm.gpu_model": (
            slurm.gpu_model,
            plain,
            "letters, digits, '_' and '.' only, as `sinfo -o %G` shows it",
        ),
        "site.slurm.cpus_per_gpu": (slurm.cpus_per_gpu, slurm.cpus_per_gpu >= 1, "at least 1"),
        "site.slurm.fake_gpus": (slurm.fake_gpus, slurm.fake_gpus >= 0, "at least 0"),
        "site.slurm.max_gpus": (slurm.max_gpus, (slurm.max_gpus or 1) >= 1, "at least 1, or null"),
        "site.slurm.max_minutes": (slurm.max_minutes, (slurm.max_minutes or 1) >= 1, "at least 1, or null"),
    }
