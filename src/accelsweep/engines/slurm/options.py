"""A block's resources in the words of Snakemake's slurm executor plugin (2.8), which turns them into sbatch options.

The plugin's treatment decides the names. `gpu` goes with `nodes=1`, or Slurm may split the GPUs over nodes. `threads`
would be capped at the login node's own cores, `cpus_per_task` is not.
"""

from __future__ import annotations

import os
import shlex

from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.slurm import Slurm
from accelsweep.engines.engine import Value
from accelsweep.engines.node import prepared

RESTARTS_VARIABLE = "ACCELSWEEP_RESTARTS"
"""Carries SLURM_RESTART_COUNT past the jobstep plugin, which removes SLURM_* from its child's environment."""

_ONE_AT_A_TIME = "--dependency=singleton"
"""Of jobs of one name, such as those of a command, one runs. On a shared node they would wait for each other."""


def keep_restarts() -> None:
    """Keep the number of a job's restarts for what Snakemake's jobstep plugin starts without it."""
    if restarts := os.environ.get("SLURM_RESTART_COUNT"):
        os.environ[RESTARTS_VARIABLE] = restarts


def job_resources(needs: Resources, slurm: Slurm) -> dict[str, Value]:
    """Return the resources in Snakemake's rule for a block with these `needs`; None leaves out an option of sbatch.

    For `mem_mb` that is 0, because Snakemake refuses None there; the partition's default memory then holds.
    `runtime` is in minutes, `mem_mb` per node, `gpu` the sum over all nodes (or 0), and `gres` of one node. See
    `across_nodes` for more.
    """
    extra = ["--exclusive" if slurm.exclusive else _ONE_AT_A_TIME, *_gpus_per_node(needs, slurm)]
    extra += [slurm.extra] if slurm.extra else []
    # At the end: the plugin would take `rack-c ` within the options for its own `-c `.
    extra += [f"--nodelist={needs.node}"] if needs.node else []
    summed = needs.gpus > 0 and slurm.gpu_request == "gpus"
    return {
        "slurm_partition": partition_of(needs, slurm),
        "slurm_account": slurm.account,
        "qos": slurm.qos,
        "constraint": slurm.constraint,
        "runtime": needs.minutes,
        "mem_mb": needs.mem_mb or 0,
        "nodes": needs.nodes,
        "cpus_per_task": needs.cpus,
        "gpu": needs.gpus if summed else 0,
        "gpu_model": needs.gpu_model if summed else None,
        "gres": f"gpu:{_of_one_node(needs)}" if needs.gpus and slurm.gpu_request == "gres" else "",
        "slurm_extra": " ".join(extra).strip(),
    }


def across_nodes(needs: Resources) -> dict[str, Value]:
    """Return the resources that the rule for blocks of several nodes adds to `job_resources`: one task per node.

    `mpi` keeps the plugin from wrapping the job in `srun -n1`; `tasks_per_gpu: 0` keeps it from taking `tasks` for the
    tasks of each GPU.
    """
    return {"mpi": "srun", "tasks": needs.tasks, "tasks_per_gpu": 0}


def _gpus_per_node(needs: Resources, slurm: Slurm) -> list[str]:
    """Return the option that asks for GPUs by node; the sum over several nodes alone could be shared out unevenly."""
    if not needs.gpus or slurm.gpu_request == "gres" or (slurm.gpu_request == "gpus" and needs.nodes == 1):
        return []
    return [shlex.quote(f"--gpus-per-node={_of_one_node(needs)}")]


def _of_one_node(needs: Resources) -> str:
    return f"{needs.gpu_model}:{needs.gpus // needs.nodes}" if needs.gpu_model else str(needs.gpus // needs.nodes)


def before_block(slurm: Slurm) -> str:
    """Return the shell commands that prepare a node for a block, each followed by ` && `."""
    commands = [f'export SLURM_RESTART_COUNT="${{{RESTARTS_VARIABLE}:-0}}"', *prepared(slurm, "SLURM_JOB_ID")]
    return "".join(f"{command} && " for command in commands)


def in_words(needs: Resources, slurm: Slurm) -> str:
    """Return one job's size for a reader: `1 node, 8 CPUs, 4 GPUs (h100), 64000 MB, 24 minutes, partition gpu`."""
    parts = [needs.node or _count(needs.nodes, "node"), f"{_count(needs.cpus, 'CPU')} per node"]
    if needs.gpus:
        parts.append(_count(needs.gpus, "GPU") + (f" ({needs.gpu_model})" if needs.gpu_model else ""))
    parts.append(f"{needs.mem_mb} MB" if needs.mem_mb else "the partition's default memory")
    parts += [f"at most {_count(needs.minutes, 'minute')}"] if needs.minutes else []
    partition = partition_of(needs, slurm)
    return ", ".join([*parts, f"partition {partition}" if partition else "the default partition"])


def partition_of(needs: Resources, slurm: Slurm) -> str | None:
    """Return the partition that takes such a job; None for the cluster's default."""
    return slurm.partition if needs.gpus else slurm.cpu_partition or slurm.partition


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def sbatch_options(needs: Resources, slurm: Slurm) -> str:
    """Return the options of sbatch that ask for a block's job, quoted for a shell; `extra` is there as it stands."""
    asked = job_resources(needs, slurm)
    gpus = f"{needs.gpu_model}:{needs.gpus}" if needs.gpu_model else str(needs.gpus)
    summed = needs.gpus > 0 and slurm.gpu_request == "gpus"
    options = {
        "--partition": asked["slurm_partition"],
        "--account": asked["slurm_account"],
        "--qos": asked["qos"],
        "--constraint": asked["constraint"],
        "--time": asked["runtime"],
        "--mem": needs.mem_mb,
        "--nodes": asked["nodes"],
        "--ntasks": needs.tasks,
        "--cpus-per-task": asked["cpus_per_task"],
        "--gpus": gpus if summed else None,
        "--gres": asked["gres"] or None,
    }
    stated = [shlex.quote(f"{name}={value}") for name, value in options.items() if value is not None]
    return " ".join([*stated, str(asked["slurm_extra"])]).strip()
