"""The nodes of a cluster by name: which a partition has, which can be measured now, and which the user meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accelsweep.base.errors import AccelsweepError, InputError, nearest
from accelsweep.core.planned.plans import Resources
from accelsweep.core.sites.slurm import Slurm
from accelsweep.engines.ask import ask
from accelsweep.engines.slurm.options import partition_of, sbatch_options
from accelsweep.engines.slurm.trial import offer

_FORMAT = "%N|%P|%a|%T|%E"
"""sinfo: node, partition, up or down, the node's state, and the reason for it, which may hold anything."""

_AWAY = ("down", "drain", "fail", "error", "inval", "unknown", "maint", "future", "reboot")
"""Beginnings of the states in which a node takes no job, see sinfo(1)."""

_MOST_NAMES = 8


LITTLE_MEMORY_MB = 1024
"""A job with less dies: it holds Snakemake twice, a supervisor, and torch."""


@dataclass(frozen=True)
class DefaultMemory:
    """The MB that a job gets which asks for none: of a node, or for each of its CPUs. Without either it gets all."""

    per_node: int | None = None
    per_cpu: int | None = None

    def of(self, cpus: int) -> int | None:
        """Return the MB of a job that holds so many CPUs of a node; None for all that the node has."""
        return self.per_node if self.per_cpu is None else self.per_cpu * cpus


def default_memory(partitions: Iterable[str]) -> dict[str, DefaultMemory]:
    """Return what these partitions, or else the whole cluster, grant; nothing where Slurm does not answer."""
    try:
        cluster = read_default_memory(ask("scontrol", "show", "config"))
        lines = ask("scontrol", "show", "partition", "--oneliner").splitlines()
    except AccelsweepError:
        return {}
    named = {found[1]: line for line in lines if (found := re.match(r"PartitionName=(\S+)", line))}
    own = {name: read_default_memory(named.get(name, "")) for name in partitions}
    return {name: cluster if found == DefaultMemory() else found for name, found in own.items()}


def read_default_memory(told: str) -> DefaultMemory:
    """Return the default that scontrol tells of a partition or of the cluster."""
    found = {key: int(number) for key, number in re.findall(r"\bDefMemPer(Node|CPU)\s*=\s*(\d+)", told)}
    return DefaultMemory(found.get("Node"), found.get("CPU"))


def default_memory_mb(needs: Resources, slurm: Slurm, cores: int) -> int | None:
    """Return the MB per node of a job that states none, on nodes with so many `cores`; None for all, or unknown."""
    partition = partition_of(needs, slurm)
    if partition is None:
        partition = next((row.partition for row in _rows() if row.default), "")
    found = [one.of(cores if slurm.exclusive else needs.cpus) for one in default_memory(partition.split(",")).values()]
    return min((one for one in found if one is not None), default=None)


@dataclass(frozen=True)
class NodeRow:
    """A node in one partition, as sinfo lists it. `partition` has no mark of the default one, which `default` is."""

    name: str
    partition: str
    default: bool
    open: bool
    state: str
    reason: str

    @classmethod
    def of(cls, line: str) -> NodeRow:
        """Return the row of a line of sinfo."""
        name, partition, available, state, reason = line.split("|", 4)
        return cls(name, partition.rstrip("*"), partition.endswith("*"), available == "up", state, reason.strip())

    @property
    def why_not(self) -> str | None:
        """The reason why the node takes no job now; None where it takes one, if only later."""
        if not self.state.startswith(_AWAY) and not self.state.endswith("*"):  # `*` does not answer
            return None
        told = "" if self.reason in ("none", "(null)", "") else f": {self.reason}"
        return f"{self.state.rstrip('*~#!%$@^-')}{told}"


@dataclass(frozen=True)
class Chosen:
    """The names of the nodes to measure, in Slurm's order, and sentences about those that are left out."""

    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def chosen_nodes(asked: str, needs: Resources, slurm: Slurm) -> Chosen:
    """Return the nodes that `asked` names: `all` of the partition, or a list such as `gpu[1-3],gpu7`.

    `needs` is a block's job. Of `all`, the nodes that are down, or to which Slurm would not send such a job, are left
    out. Raises InputError for a partition that is unknown or down and for a node that cannot be measured, and
    AccelsweepError where Slurm does not answer.
    """
    rows = _rows()
    here = _of_partition(rows, partition_of(needs, slurm))
    if asked != "all":
        here = [_named(name, here, rows) for name in dict.fromkeys(_expanded(asked))]
    away = {row.name: why for row in here if (why := row.why_not or _refused(row.name, needs, slurm)) is not None}
    if asked != "all":
        for name, why in away.items():
            raise InputError(f"--nodes: {name} cannot be measured ({why}): leave it out, or give `--nodes all`")
    names = tuple(row.name for row in here if row.name not in away)
    if not names:
        told = _listed(f"{name} ({why})" for name, why in away.items())
        raise InputError(f"no node of {_words(here)} can be measured: {told}")
    return Chosen(names, tuple(f"node {name} is left out: {why}" for name, why in away.items()))


def refuse_unknown_partition(needs: Resources, slurm: Slurm) -> None:
    """Raise InputError where the cluster has no such partition, or it is down, with the nearest name that there is."""
    _of_partition(_rows(), partition_of(needs, slurm))


def _refused(node: str, needs: Resources, slurm: Slurm) -> str | None:
    """Return why Slurm would not send a block to this node, in its own words; None where it would, if only later."""
    offered = offer(sbatch_options(needs.model_copy(update={"node": node}), slurm))
    return None if offered.taken or offered.passing else offered.said


def _rows() -> list[NodeRow]:
    listing = ask("sinfo", "--noheader", "--Node", "--all", f"--format={_FORMAT}")
    return [NodeRow.of(line) for line in listing.splitlines() if line.strip()]


def _of_partition(rows: Sequence[NodeRow], partition: str | None) -> list[NodeRow]:
    """Return the nodes of a partition, or of several that commas separate, each once."""
    wanted = partition.split(",") if partition is not None else [row.partition for row in rows if row.default]
    known = dict.fromkeys(row.partition for row in rows)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"the cluster has no partition '{name}'{nearest(name, known)}, which site.slurm.partition names; "
                f"it has: {', '.join(known)}"
            )
    if not wanted:
        raise InputError("the cluster has no default partition: name one in site.slurm.partition")
    here = [row for row in rows if row.partition in wanted]
    up = [row for row in here if row.open]
    if not up:
        raise InputError(f"{_words(here)} is down and takes no job: name another one in site.slurm.partition")
    return list({row.name: row for row in up}.values())


def _expanded(asked: str) -> list[str]:
    """Return the single names of a list in Slurm's notation."""
    try:
        found = ask("scontrol", "show", "hostnames", asked).split()
    except AccelsweepError as error:
        raise InputError(f"--nodes {asked} is no list of nodes such as gpu[1-3],gpu7 ({error})") from None
    if not found:
        raise InputError("--nodes names no node: give `all`, or a list such as gpu[1-3],gpu7")
    return found


def _named(name: str, here: Sequence[NodeRow], rows: Sequence[NodeRow]) -> NodeRow:
    """Return the row of a node that the user named. Raises InputError where the partition has none of this name."""
    row = next((row for row in here if row.name == name), None)
    if row is not None:
        return row
    where, elsewhere = _words(here), [row.partition for row in rows if row.name == name]
    if elsewhere:
        raise InputError(
            f"--nodes: {name} is not in {where} but in {', '.join(elsewhere)}: leave it out, or change "
            "site.slurm.partition"
        )
    names = [row.name for row in here]
    raise InputError(f"--nodes: there is no node '{name}'{nearest(name, names)}; {where} has {_listed(names)}")


def _words(rows: Sequence[NodeRow]) -> str:
    return f"partition {','.join(dict.fromkeys(row.partition for row in rows))}"


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more
