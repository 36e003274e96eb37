"""Draft a site file from Slurm's data on nodes and accounts: YAML with comments, for the user to complete.

Slurm lists partitions, cores, memory, GPU names and, where slurmdbd runs, the user's accounts. It provides neither
the vendors' names of processors and GPUs, nor the network or the scratch folder; the draft shows where to add these.
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


@dataclass(frozen=True)
class DraftedKind:
    """A kind of node.

    `called` is the kind's name unless already taken, `listed` is the text of its comment, and `nodes` is the number of
    nodes. `gpus` is per node; `gpu_model` is the cluster's name for the GPUs. `words` are lines under the scheduler's
    key, followed by `comments`.
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
    """Return the text of a site file. `words` are lines under the scheduler's key; `source` lists the queried tools."""
    lines = [
        f"# A draft from {source}, which works as is: test it with accelsweep doctor site={name}.",
        "# Complete what the cluster does not provide: the vendors' names of processors and GPUs, the scratch folder.",
        f"name: {plain(name)}",
        f"scheduler: {scheduler}",
        "probe: false",
        f"{scheduler}:",
        *(f"  {line}" for line in words),
        "kinds:",
    ]
    names: set[str] = set()
    for kind in kinds:
        unique = (kind.called if number == 1 else f"{kind.called}-{number}" for number in itertools.count(1))
        name = next(candidate for candidate in unique if candidate not in names)
        names.add(name)
        lines += [
            f"  - name: {plain(name)}               # {kind.listed}",
            f"    nodes: {kind.nodes}",
            "    inventory:                # models as lscpu and nvidia-smi -L name them, used to look up prices",
            f"      - {{accelerator: cpu, model: CPU, count: {kind.cores}, memory_bytes: {kind.memory_bytes}}}",
        ]
        if kind.gpus:
            lines.append(f"      - {{accelerator: cuda, model: {plain(kind.gpu_model or 'GPU')}, count: {kind.gpus}}}")
        lines += [f"    {scheduler}:", *(f"      {line}" for line in kind.words)]
        lines += [f"    # {comment}" for comment in kind.comments]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Return a YAML string, quoted if YAML might parse it as a number, a boolean or null."""
    is_word = re.fullmatch(r"[A-Za-z_][\w.-]*", text) is not None
    return text if is_word and text.lower() not in _YAML_CONSTANTS else json.dumps(text)


_YAML_CONSTANTS = ("true", "false", "yes", "no", "on", "off", "y", "n", "null", "none", "nan", "inf")


def also(others: Sequence[str]) -> str:
    """Return a comment that lists alternative values."""
    return f"  # or {', '.join(others)}" if others else ""


_FIELDS = "DefaultAccount,Account,Partition,QOS,DefaultQOS"

_CLUSTER = re.compile(r"^ClusterName\s*=\s*(\S+)", re.MULTILINE)

_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class Association:
    """A user's account, in one partition or in all, with the `qos` values that it may request and the default one."""

    account: str
    default: bool
    partition: str
    qos: tuple[str, ...]
    default_qos: str

    def __str__(self) -> str:
        """`account physics: qos normal, high (normal by default), in the partition gpu only`."""
        qos = f"qos {', '.join(self.qos)}" if self.qos else "no qos"
        default = f" ({self.default_qos} by default)" if self.default_qos else ""
        where = f", in the partition {self.partition} only" if self.partition else ""
        return f"account {self.account}: {qos}{default}{where}"


def associations() -> list[Association]:
    """Return the user's associations with this cluster; empty if there is no slurmdbd or it does not answer."""
    try:
        cluster = _CLUSTER.search(ask("scontrol", "show", "config", timeout_seconds=_TIMEOUT_SECONDS))
        output = ask(
            *("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "user", getpass.getuser(), "withassoc"),
            *((f"cluster={cluster[1]}",) if cluster else ()),
            f"format={_FIELDS}",
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except (AccelsweepError, OSError):  # a user ID without a name has no account
        return []
    rows = [line.split("|") for line in output.splitlines() if line.count("|") == _FIELDS.count(",")]
    return list(
        dict.fromkeys(
            Association(account, account == default, partition, tuple(filter(None, qos.split(","))), default_qos)
            for default, account, partition, qos, default_qos in rows
        )
    )


def association_lines(associations: Sequence[Association]) -> Iterator[str]:
    """Yield the lines of a site file about account and quality of service, with the alternatives as comments."""
    accounts = list(dict.fromkeys(one.account for one in sorted(associations, key=lambda one: not one.default)))
    if not accounts:
        yield "account: null             # the value for sbatch --account: sacctmgr show assoc user=$USER"
        return
    yield f"account: {plain(accounts[0])}{also(accounts[1:])}"
    yield "qos: null                 # null selects the default; sacctmgr lists what each account may request:"
    yield from (f"# {association}" for association in associations)


_FORMAT = "%P|%D|%c|%m|%G|%l|%f|%a|%N"
"""sinfo fields: partition, node count, CPUs and MB per node, gres, time limit, features, availability, names."""

_SHORT_MINUTES = 120
"""A partition with a shorter limit is considered a debugging partition, drafted only for nodes that are in no other."""

_HEAD_MINUTES = 1440

_ENOUGH_MB = 4000

_GPU = re.compile(r"gpu:(?:([^:,()]+):)?(\d+)")

_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


@dataclass(frozen=True)
class Nodes:
    """Identical nodes of one partition, as listed by sinfo.

    `memory_mb` is per node; `gpus` contains (name, count) pairs.
    """

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
    """Return a site file for the cluster of this login node. Raises AccelsweepError if Slurm does not answer."""
    listed = [_nodes(line) for line in ask("sinfo", "--noheader", f"--format={_FORMAT}").splitlines() if line.strip()]
    usable = [nodes for nodes in listed if nodes is not None]
    if not usable:
        raise AccelsweepError("sinfo lists no nodes in a partition that is up: ask the cluster's administrators")
    allowed = associations()
    return _site_file(name, usable, allowed, refusals({one.partition for one in usable}, allowed))


def refusals(partitions: Iterable[str], allowed: Sequence[Association]) -> dict[str, str]:
    """Return Slurm's messages, by partition, for partitions that reject a small job under the default account."""
    account = next((f"--account={one.account} " for one in allowed if one.default), "")
    messages = {}
    for partition in partitions:
        with contextlib.suppress(AccelsweepError):
            offered = offer(f"{account}--partition={shlex.quote(partition)} --time=10")
            if not offered.accepted and not offered.temporary:
                messages[partition] = offered.message
    return messages


def _site_file(name: str, found: Sequence[Nodes], allowed: Sequence[Association], refused: Mapping[str, str]) -> str:
    """Return the site file for these nodes, with one kind per set of nodes, however many partitions share it."""
    kinds = _kinds(found, refused)
    widest = max((one for one, _ in kinds), key=lambda one: (one.count, not one.gpus))
    minutes = min(widest.minutes or _HEAD_MINUTES, _HEAD_MINUTES)
    words = (
        *association_lines(allowed),
        "mem_mb: null              # per job and node; null selects the partition's default",
        "max_jobs: null            # maximum number of queued jobs, if your site limits users",
        "cpus_per_gpu: 1           # CPU cores and threads per GPU rank",
        "scratch: null             # a node-local folder, e.g. /tmp",
        f"driver: {{partition: {plain(widest.partition)}, minutes: {minutes}}} # for a background driver",
    )
    source = "sinfo and sacctmgr" if allowed else "sinfo"
    defaults = default_memory({one.partition for one, _ in kinds})
    return site_file(
        name, "slurm", source, words, [_slurm_kind(one, others, defaults, refused) for one, others in kinds]
    )


def _kinds(found: Sequence[Nodes], refused: Mapping[str, str]) -> list[tuple[Nodes, list[str]]]:
    """Return each set of identical nodes once, in the partition with the most of them, and its other partitions.

    Partitions that reject the user, or whose time limit is too short for a sweep, come last.
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
    """Expand a list in Slurm's notation, such as `gpu[1-3,07],n1`, into individual names."""
    expansion = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", names):
        pieces = re.findall(r"\[[^\]]*\]|[^\[]+", part)
        choices = [_numbers(piece) if piece.startswith("[") else [piece] for piece in pieces]
        expansion += ["".join(combined) for combined in itertools.product(*choices)]
    return expansion


def _numbers(ranges: str) -> list[str]:
    numbers = []
    for part in ranges.strip("[]").split(","):
        first, _, last = part.partition("-")
        numbers += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return numbers


def _slurm_kind(
    nodes: Nodes, others: Sequence[str], defaults: Mapping[str, DefaultMemory], refused: Mapping[str, str]
) -> DraftedKind:
    model, gpus = nodes.gpus[0] if nodes.gpus else (None, 0)
    words = [f"partition: {plain(nodes.partition)}{also(others)}"]
    words += [f"gpu_model: {plain(model)}"] if model else []
    if model and re.fullmatch(r"[A-Za-z0-9_.]+", model) is None:
        words.append("gpu_request: per_node   # Snakemake's plugin accepts the characters in the name only this way")
    words += [f"max_minutes: {nodes.minutes}"] if nodes.minutes is not None else []
    memory = defaults.get(nodes.partition, DefaultMemory()).of(nodes.cores)
    if memory is not None and memory < LITTLE_MEMORY_MB:
        words.append(f"mem_mb: {_ENOUGH_MB}            # the partition's default, {memory} MB, is too little for torch")
    comments = [f"Slurm rejects your jobs there: {refused[nodes.partition]}"] if nodes.partition in refused else []
    if further := ", ".join(f"{number} x {other or 'GPU'}" for other, number in nodes.gpus[1:]):
        comments.append(f"These nodes also have {further}: define a separate kind for those.")
    return DraftedKind(
        called=model or ("gpu" if gpus else "cpu"),
        listed=nodes.names + (f", features {nodes.features}" if nodes.features else ""),
        nodes=nodes.count,
        cores=nodes.cores,
        memory_bytes=nodes.memory_mb * 2**20,
        gpus=gpus,
        gpu_model=model,
        words=words,
        comments=comments,
    )


def _nodes(line: str) -> Nodes | None:
    """Return the nodes in a line of sinfo output; None for a partition that is down."""
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
    match = _LIMIT.fullmatch(limit)
    if match is None:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes
