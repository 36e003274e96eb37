"""A draft of a site file from what Slurm says of its nodes: text with comments, to be read and completed.

Slurm knows partitions, cores, memory and the names of GPUs. It does not know what processors and GPUs are called by
their makers, nor the network or the scratch folder. The draft says where these go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask

_FORMAT = "%P|%D|%c|%m|%G|%l|%f|%a|%N"
"""sinfo: partition, nodes, CPUs and MB of a node, generic resources, time limit, features, up or down, names."""

_GPU = re.compile(r"gpu:(?:([^:,()]+):)?(\d+)")
_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Nodes:
    """Alike nodes of one partition, as sinfo lists them. `memory_mb` is of one node; `gpus` are (name, number)."""

    partition: str
    default: bool
    count: int
    cores: int
    memory_mb: int
    gpus: tuple[tuple[str | None, int], ...]
    minutes: int | None
    features: str
    names: str


def draft(name: str) -> str:
    """Return a site file for the cluster of this login node. Raises AccelsweepError where Slurm does not answer."""
    found = [_nodes(line) for line in ask("sinfo", "--noheader", f"--format={_FORMAT}").splitlines() if line.strip()]
    usable = [nodes for nodes in found if nodes is not None]
    if not usable:
        raise AccelsweepError("sinfo lists no node of a partition that is up: ask the cluster's staff")
    return site_file(name, usable)


def site_file(name: str, found: Sequence[Nodes]) -> str:
    """Return the site file for these nodes: a kind for each set of nodes, in the partition with the longest limit."""
    each: dict[str, list[Nodes]] = {}
    for nodes in found:
        each.setdefault(nodes.names, []).append(nodes)
    lines = [
        "# A draft from sinfo. Read it, complete it, then: accelsweep plan experiment=... site=NAME --profile slurm",
        f"name: {name}",
        "scheduler: slurm",
        "probe: false",
        "slurm:",
        "  account: null             # what sbatch --account takes: sacctmgr show assoc user=$USER",
        "  cpus_per_gpu: 1           # CPU cores and threads of each GPU's rank",
        "  scratch: null             # a folder of the node, e.g. /tmp",
        "kinds:",
    ]
    taken: set[str] = set()
    for same in each.values():
        lines += _kind(same, taken)
    return "\n".join(lines) + "\n"


def _kind(same: Sequence[Nodes], taken: set[str]) -> list[str]:
    nodes = max(same, key=lambda one: (one.minutes is None, one.minutes or 0, one.default))
    others = sorted({one.partition for one in same} - {nodes.partition})
    gpus = nodes.gpus[:1]
    model = gpus[0][0] if gpus else None
    name = _unused(model or ("gpu" if gpus else "cpu"), taken)
    cpu = f"{{accelerator: cpu, model: CPU, count: {nodes.cores}, memory_bytes: {nodes.memory_mb * 2**20}}}"
    lines = [
        f"  - name: {name}               # {nodes.names}" + (f", features {nodes.features}" if nodes.features else ""),
        f"    nodes: {nodes.count}",
        "    inventory:                # models as lscpu and nvidia-smi -L name them: prices go by these names",
        f"      - {cpu}",
    ]
    lines += [f"      - {{accelerator: cuda, model: {model or 'GPU'}, count: {number}}}" for _, number in gpus]
    lines += ["    slurm:", f"      partition: {nodes.partition}" + _also(others)]
    lines += [f"      gpu_model: {model}"] if model else []
    if model and re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        lines.append("      gpu_request: per_node   # the name has signs that Snakemake's plugin takes in no other way")
    lines += [f"      max_minutes: {nodes.minutes}"] if nodes.minutes is not None else []
    left_out = ", ".join(f"{number} x {other or 'GPU'}" for other, number in nodes.gpus[1:])
    return [*lines, f"    # These nodes have {left_out}, too: give them a kind of their own."] if left_out else lines


def _also(partitions: Sequence[str]) -> str:
    return f"  # or {', '.join(partitions)}" if partitions else ""


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def _nodes(line: str) -> Nodes | None:
    """Return the nodes of a line of sinfo; None for a partition that is down."""
    partition, count, cores, memory, gres, limit, features, state, names = line.split("|")
    if state != "up":
        return None
    return Nodes(
        partition=partition.rstrip("*"),
        default=partition.endswith("*"),
        count=int(count),
        cores=int(re.sub(r"\D", "", cores)),
        memory_mb=int(re.sub(r"\D", "", memory)),
        gpus=tuple((name or None, int(number)) for name, number in _GPU.findall(gres)),
        minutes=_minutes(limit),
        features="" if features == "(null)" else features,
        names=names,
    )


def _minutes(limit: str) -> int | None:
    """Return a time limit such as `1-00:00:00` or `30:00` in minutes; None for `infinite`."""
    found = _LIMIT.fullmatch(limit)
    if found is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes
