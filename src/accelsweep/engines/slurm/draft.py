"""A draft of a site file from what Slurm says of its nodes: text with comments, to be read and completed.

Slurm knows partitions, cores, memory and the names of GPUs. Where it keeps accounts, it knows the user's. It does not
know what processors and GPUs are called by their makers, nor the network or the scratch folder. The draft says where
these go.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.site_file import DraftedKind, also, plain, site_file
from accelsweep.engines.slurm import associations
from accelsweep.engines.slurm.associations import Association
from accelsweep.engines.slurm.nodes import LITTLE_MEMORY_MB, DefaultMemory, default_memory
from accelsweep.engines.slurm.trial import offer

_FORMAT = "%P|%D|%c|%m|%G|%l|%f|%a|%N"
"""sinfo: partition, nodes, CPUs and MB of a node, generic resources, time limit, features, up or down, names."""

_SHORT_MINUTES = 120
"""A partition with a shorter limit is for trying things: it is drafted where there is no other."""

_HEAD_MINUTES = 1440
_ENOUGH_MB = 4000
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
    allowed = associations.associations()
    return _site_file(name, usable, allowed, refusals({one.partition for one in usable}, allowed))


def refusals(partitions: Iterable[str], allowed: Sequence[Association]) -> dict[str, str]:
    """Return Slurm's words on the partitions that refuse a small job of the user's default account, by their names."""
    account = next((f"--account={one.account} " for one in allowed if one.default), "")
    found = {}
    for partition in partitions:
        with contextlib.suppress(AccelsweepError):
            offered = offer(f"{account}--partition={shlex.quote(partition)} --time=10")
            if not offered.taken and not offered.passing:
                found[partition] = offered.said
    return found


def _site_file(name: str, found: Sequence[Nodes], allowed: Sequence[Association], refused: Mapping[str, str]) -> str:
    """Return the site file for these nodes: a kind for each set of nodes, whatever partitions they are in."""
    kinds = _kinds(found, refused)
    widest = max((one for one, _ in kinds), key=lambda one: (one.count, not one.gpus))
    minutes = min(widest.minutes or _HEAD_MINUTES, _HEAD_MINUTES)
    words = (
        *associations.words(allowed),
        "mem_mb: null              # of a job, per node; null takes the partition's default",
        "max_jobs: null            # so many jobs in the queue at once, where your site limits users",
        "cpus_per_gpu: 1           # CPU cores and threads of each GPU's rank",
        "scratch: null             # a folder of the node, e.g. /tmp",
        f"head: {{partition: {plain(widest.partition)}, minutes: {minutes}}} # of a head by --detach",
    )
    source = "sinfo and sacctmgr" if allowed else "sinfo"
    defaults = default_memory({one.partition for one, _ in kinds})
    return site_file(name, "slurm", source, words, [_kind(one, others, defaults, refused) for one, others in kinds])


def _kinds(found: Sequence[Nodes], refused: Mapping[str, str]) -> list[tuple[Nodes, list[str]]]:
    """Return each set of alike nodes once, in the partition that has most of them, with the names of their others.

    A partition that refuses the user, or whose limit is too short for a sweep, comes last.
    """

    def rank(nodes: Nodes) -> tuple[bool, bool, int, float, bool]:
        minutes = math.inf if nodes.minutes is None else nodes.minutes
        return nodes.partition not in refused, minutes >= _SHORT_MINUTES, nodes.count, minutes, nodes.default

    covered: set[str] = set()
    kinds = []
    for nodes in sorted(found, key=rank, reverse=True):
        names = expanded(nodes.names)
        own = [name for name in names if name not in covered]
        covered |= set(own)
        if own:
            listed = nodes.names if len(own) == len(names) else ",".join(own)
            kinds.append((replace(nodes, count=len(own), names=listed), set(own)))
    lists = [(one, set(expanded(one.names))) for one in found]
    order = {name: at for at, name in enumerate(dict.fromkeys(name for one in found for name in expanded(one.names)))}
    kinds.sort(key=lambda kind: min(order[name] for name in kind[1]))
    return [
        (nodes, sorted({one.partition for one, names in lists if names & own} - {nodes.partition}))
        for nodes, own in kinds
    ]


def expanded(names: str) -> list[str]:
    """Return the single names of a list in Slurm's notation, such as `gpu[1-3,07],n1`."""
    found = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", names):
        pieces = [
            _numbers(piece) if piece.startswith("[") else [piece] for piece in re.findall(r"\[[^\]]*\]|[^\[]+", part)
        ]
        found += ["".join(combined) for combined in itertools.product(*pieces)]
    return found


def _numbers(ranges: str) -> list[str]:
    found = []
    for one in ranges.strip("[]").split(","):
        first, _, last = one.partition("-")
        found += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return found


def _kind(
    nodes: Nodes, others: Sequence[str], defaults: Mapping[str, DefaultMemory], refused: Mapping[str, str]
) -> DraftedKind:
    model, gpus = nodes.gpus[0] if nodes.gpus else (None, 0)
    words = [f"partition: {plain(nodes.partition)}{also(others)}"]
    words += [f"gpu_model: {plain(model)}"] if model else []
    if model and re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        words.append("gpu_request: per_node   # the name has signs that Snakemake's plugin takes in no other way")
    words += [f"max_minutes: {nodes.minutes}"] if nodes.minutes is not None else []
    memory = defaults.get(nodes.partition, DefaultMemory()).of(nodes.cores)
    if memory is not None and memory < LITTLE_MEMORY_MB:
        words.append(f"mem_mb: {_ENOUGH_MB}            # the partition's default, {memory} MB, is too little for torch")
    comments = [f"Slurm refuses your jobs there: {refused[nodes.partition]}"] if nodes.partition in refused else []
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
        comments=[
            *comments,
            *([f"These nodes have {left_out}, too: give them a kind of their own."] if left_out else []),
        ],
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
