"""A draft of a site file from what Slurm says of its nodes: text with comments, to be read and completed.

Slurm knows partitions, cores, memory and the names of GPUs. Where it keeps accounts, it knows the user's. It does not
know what processors and GPUs are called by their makers, nor the network or the scratch folder. The draft says where
these go.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.site_file import DraftedKind, also, plain, site_file
from accelsweep.engines.slurm import associations
from accelsweep.engines.slurm.associations import Association

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
    return _site_file(name, usable, associations.associations())


def _site_file(name: str, found: Sequence[Nodes], allowed: Sequence[Association]) -> str:
    """Return the site file for these nodes: a kind for each set of nodes, in the partition with the longest limit."""
    each: dict[str, list[Nodes]] = {}
    for nodes in found:
        each.setdefault(nodes.names, []).append(nodes)
    words = (
        *associations.words(allowed),
        "cpus_per_gpu: 1           # CPU cores and threads of each GPU's rank",
        "scratch: null             # a folder of the node, e.g. /tmp",
    )
    return site_file(
        name, "slurm", "sinfo and sacctmgr" if allowed else "sinfo", words, [_kind(same) for same in each.values()]
    )


def _kind(same: Sequence[Nodes]) -> DraftedKind:
    nodes = max(same, key=lambda one: (one.minutes is None, one.minutes or 0, one.default))
    others = sorted({one.partition for one in same} - {nodes.partition})
    model, gpus = nodes.gpus[0] if nodes.gpus else (None, 0)
    words = [f"partition: {plain(nodes.partition)}{also(others)}"]
    words += [f"gpu_model: {plain(model)}"] if model else []
    if model and re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        words.append("gpu_request: per_node   # the name has signs that Snakemake's plugin takes in no other way")
    words += [f"max_minutes: {nodes.minutes}"] if nodes.minutes is not None else []
    left_out = ", ".join(f"{number} x {other or 'GPU'}" for other, number in nodes.gpus[1:])
    return DraftedKind(
        called=model or ("gpu" if gpus else "cpu"),
        listed=nodes.names + (f", features {nodes.features}" if nodes.features else ""),
        nodes=nodes.count,
        cores=nodes.cores,
        memory_bytes=nodes.memory_mb * 2**20,
        gpus=gpus,
        gpu_model=model,
        words=words,
        comments=[f"These nodes have {left_out}, too: give them a kind of their own."] if left_out else (),
    )


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
