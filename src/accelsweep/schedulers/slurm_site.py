"""A draft of a site file from what Slurm says of its nodes: text with comments, to be read and completed.

Slurm knows partitions, cores, memory and the names of GPUs. Where it keeps accounts, it knows the user's. It does not
know what processors and GPUs are called by their makers, nor the network or the scratch folder. The draft says where
these go.
"""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import ask
from accelsweep.schedulers.slurm import LITTLE_MEMORY_MB, DefaultMemory, default_memory, offer

# The text of a drafted site file: what an engine says of its nodes, with comments on what it does not know.


@dataclass(frozen=True)
class DraftedKind:
    """Alike nodes. `called` is the name that they get if it is free, and `nodes` how many there are.

    `gpus` are of one node, `gpu_model` is the cluster's name of them. `words` are lines below the engine's key,
    `comments` follow them.
    """

    called: str
    listed: str
    nodes: int
    cores: int
    memory_bytes: int
    gpus: int
    gpu_model: str | None
    words: Sequence[str]
    comments: Sequence[str] = ()


def site_file(name: str, scheduler: str, source: str, words: Sequence[str], kinds: Sequence[DraftedKind]) -> str:
    """Return the site file of a cluster. `words` are lines below the engine's key, `source` the command asked."""
    lines = [
        f"# A draft from {source}, which runs as it is: accelsweep doctor site={name} tries it.",
        "# Complete what the cluster does not tell: the makers' names of processors and GPUs, the scratch folder.",
        f"name: {plain(name)}",
        f"scheduler: {scheduler}",
        "probe: false",
        f"{scheduler}:",
        *(f"  {line}" for line in words),
        "kinds:",
    ]
    taken: set[str] = set()
    for kind in kinds:
        lines += _kind(kind, _unused(kind.called, taken), scheduler)
    return "\n".join(lines) + "\n"


def _kind(kind: DraftedKind, name: str, scheduler: str) -> list[str]:
    cpu = f"{{accelerator: cpu, model: CPU, count: {kind.cores}, memory_bytes: {kind.memory_bytes}}}"
    lines = [
        f"  - name: {plain(name)}               # {kind.listed}",
        f"    nodes: {kind.nodes}",
        "    inventory:                # models as lscpu and nvidia-smi -L name them: prices go by these names",
        f"      - {cpu}",
    ]
    if kind.gpus:
        lines.append(f"      - {{accelerator: cuda, model: {plain(kind.gpu_model or 'GPU')}, count: {kind.gpus}}}")
    lines += [f"    {scheduler}:", *(f"      {line}" for line in kind.words)]
    return [*lines, *(f"    # {comment}" for comment in kind.comments)]


def plain(text: str) -> str:
    """Return a text as YAML takes it for one, in quotes where it might be taken for a number, a truth or nothing."""
    word = re.fullmatch(r"[A-Za-z_][\w.-]*", text) is not None
    return text if word and text.lower() not in _NO_TEXTS else json.dumps(text)


_NO_TEXTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan", "inf")


def also(others: Sequence[str]) -> str:
    """Return the comment on a value in whose place one of the `others` may stand."""
    return f"  # or {', '.join(others)}" if others else ""


def _unused(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


# The accounts that the cluster's accounting grants its user, each with its partitions and qualities of service.

_FIELDS = "DefaultAccount,Account,Partition,QOS,DefaultQOS"

_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)

_PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Association:
    """An account of the user, in one partition or in all. `qos` may be asked for; without it `usual_qos` is taken."""

    account: str
    default: bool
    partition: str
    qos: tuple[str, ...]
    usual_qos: str

    def __str__(self) -> str:
        """`account physics: qos normal, high (normal by default), in the partition gpu alone`."""
        qos = f"qos {', '.join(self.qos)}" if self.qos else "no qos"
        usual = f" ({self.usual_qos} by default)" if self.usual_qos else ""
        where = f", in the partition {self.partition} alone" if self.partition else ""
        return f"account {self.account}: {qos}{usual}{where}"


def associations() -> list[Association]:
    """Return the user's associations with this cluster; none where nothing keeps accounts, or it does not answer."""
    try:
        cluster = _CLUSTER.search(ask("scontrol", "show", "config", patience_seconds=_PATIENCE_SECONDS))
        told = ask(
            *("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "user", getpass.getuser(), "withassoc"),
            *((f"cluster={cluster[1]}",) if cluster else ()),
            f"format={_FIELDS}",
            patience_seconds=_PATIENCE_SECONDS,
        )
    except (AccelsweepError, OSError):  # a user without a name has no account either
        return []
    return list(
        dict.fromkeys(_association(line) for line in told.splitlines() if line.count("|") == _FIELDS.count(","))
    )


def _association(line: str) -> Association:
    usual, account, partition, qos, usual_qos = line.split("|")
    return Association(account, account == usual, partition, tuple(filter(None, qos.split(","))), usual_qos)


def association_lines(found: Sequence[Association]) -> Iterator[str]:
    """Yield the lines of a site file about account and quality of service, with what sacctmgr says as comments."""
    accounts = list(dict.fromkeys(one.account for one in sorted(found, key=lambda one: not one.default)))
    if not accounts:
        yield "account: null             # what sbatch --account takes: sacctmgr show assoc user=$USER"
        return
    yield f"account: {plain(accounts[0])}{also(accounts[1:])}"
    yield "qos: null                 # null takes the default; sacctmgr lists what each account may ask for:"
    yield from (f"# {one}" for one in found)


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
    allowed = associations()
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
        *association_lines(allowed),
        "mem_mb: null              # of a job, per node; null takes the partition's default",
        "max_jobs: null            # so many jobs in the queue at once, where your site limits users",
        "cpus_per_gpu: 1           # CPU cores and threads of each GPU's rank",
        "scratch: null             # a folder of the node, e.g. /tmp",
        f"head: {{partition: {plain(widest.partition)}, minutes: {minutes}}} # of a head by --detach",
    )
    source = "sinfo and sacctmgr" if allowed else "sinfo"
    defaults = default_memory({one.partition for one, _ in kinds})
    return site_file(
        name, "slurm", source, words, [_slurm_kind(one, others, defaults, refused) for one, others in kinds]
    )


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


def _slurm_kind(
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
