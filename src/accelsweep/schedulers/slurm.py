"""The nodes of a cluster by name: which a partition has, which can be measured now, and which the user meant."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.config.site import Site, Slurm
from accelsweep.errors import AccelsweepError, InputError, nearest
from accelsweep.schedulers.protocol import Job, JobEnd, JobOffer, Remedy, Resources, Value, answered, ask, prepared

# A block's resources in the words of Snakemake's slurm executor plugin (2.8), which turns them into sbatch options.

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


# What Slurm, or Snakemake's plugin for it, refuses at submission, and the keys that its words are about.


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


# One job offered to Slurm, or submitted and followed, beside all sweeps.

_REFUSAL_PREFIX = re.compile(r"^(?:sbatch: (?:error: )?|allocation failure: )+", re.MULTILINE)

_STARTS = re.compile(r"to start at (\S+) using .* on nodes? (\S+)")

_NOT_ENDED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE")


def offer(options: str) -> JobOffer:
    """Return whether Slurm would take a job with these `options` of sbatch, in its own words."""
    asked = ["sbatch", "--test-only", *shlex.split(options), "--wrap=true"]
    taken, words = answered(*asked)
    command = f"sbatch --test-only {options} --wrap=true"
    if taken:
        starts = _STARTS.search(" ".join(words.split()))
        said = f"Slurm would take it, and start it at {starts[1]} on {starts[2]}" if starts else " ".join(words.split())
        return JobOffer(taken, said, command, nodes=starts[2] if starts else "")
    said = "; ".join(
        dict.fromkeys(" ".join(line.split()) for line in _REFUSAL_PREFIX.sub("", words).splitlines() if line.strip())
    )
    return JobOffer(taken, said, command, keys_for(said), passing=full(said) is not None or no_answer(said))


def submit(options: str, command: str, log: Path) -> str:
    """Submit a job with these `options`; return its number."""
    asked = ["sbatch", "--parsable", *shlex.split(options), f"--output={log}", "--job-name=accelsweep-doctor"]
    return ask(*asked, f"--wrap={command}").strip().partition(";")[0]


def state(number: str) -> str | None:
    """Return `STATE (REASON)` of a job that has not ended; None once it has."""
    told = ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r").strip()
    words, _, reason = told.partition("|")
    return f"{words} ({reason})" if words.startswith(_NOT_ENDED) else None


_SINFO_FORMAT = "%N|%P|%a|%T|%E"
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
    listing = ask("sinfo", "--noheader", "--Node", "--all", f"--format={_SINFO_FORMAT}")
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


# Slurm's refusals and ends of jobs: its words in Snakemake's log and in the logs of jobs.

_REFUSED = re.compile(
    r"message: SLURM (?:sbatch|job submission) failed\. The error message was '?(.*?)'?\.?\n    \w", re.S
)

_NOT_SUBMITTED = re.compile(
    r"message: Job submission failed with exception: (.+?)(?:For further error details|\n    \w)", re.S
)

_ENDED = re.compile(r"message: SLURM-job '(\d+)' failed.*?SLURM status is: '(\w+)'", re.DOTALL)

_JOB_LOG = re.compile(r"^    log: .*?(\S+/\d+\.log)", re.MULTILINE)

_SAYS = re.compile(r"(?:slurmstepd|slurmd|srun): (?:error|fatal): (?!.*[Ee]xited with exit code)(.+)")

_CHATTER = re.compile(r"^(?:sbatch|slurmstepd): (?:error|fatal): ")

_WHOLE_JOB = re.compile(r"exceeded .*memory limit(?! at some point)", re.IGNORECASE)

_MEMORY = re.compile(rf"{_WHOLE_JOB.pattern}|oom[-_ ]?kill|out of memory", re.IGNORECASE)


def ended(paragraph: str) -> JobEnd | None:
    """Return how a job ended, by a paragraph of Snakemake's log; None where it is about no job of Slurm's."""
    if refused := _REFUSED.search(paragraph) or _NOT_SUBMITTED.search(paragraph):
        return JobEnd(refusal="\n".join(_CHATTER.sub("", line.strip()) for line in refused[1].splitlines()))
    if (end := _ENDED.search(paragraph)) is None:
        return None
    log = _JOB_LOG.search(paragraph)
    return JobEnd(number=end[1], state=end[2], log=Path(log[1]) if log else None)


def own_words(lines: Sequence[str]) -> list[str]:
    """Return what Slurm itself says in these lines of a job's log."""
    return [said[1] for line in lines if (said := _SAYS.search(line))]


def tells_of_memory(line: str) -> bool:
    """Return whether Slurm tells in this line that a job, or a process of it, was ended for lack of memory."""
    return line.startswith(("slurm", "srun:")) and _MEMORY.search(line) is not None


def of_the_whole_job(line: str) -> bool:
    """Return whether such a line is about a whole job, which ended with it."""
    return _WHOLE_JOB.search(line) is not None


# The jobs of a sweep in Slurm's queue, found by their comments, where the executor plugin writes the block's name.

_FIELDS = "%i|%T|%r|%P|%N|%M|%Z|%k"  # id, state, reason, partition, nodes, elapsed, working directory, comment

_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")

_COULD_NOT_START = "launch fail"  # "launch failed requeued held", "launch failure limit exceeded requeued held"

_MOST_RELEASES = 3

_OVER_FOR_GOOD = {"PREEMPTED": "was preempted", "NODE_FAIL": "lost its node"}
"""States that the plugin takes for temporary ones, with words for them."""

HOLDING = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED"
"""The states in which a job counts against what its user may hold at once."""

_NEVER = re.compile(
    r"PartitionTimeLimit|BadConstraints|Invalid(Account|QOS)|DependencyNeverSatisfied|(Assoc|QOS)\w*PerJob\w*"
    r"|QOSMin\w+|\w*NotAllowed"
)
"""Slurm's reasons, see squeue(1), for which a job waits until its request or the cluster's limits are changed."""

_FEW_NODES = "PartitionNodeLimit"
"""A reason that an ask for too many nodes has, but nodes that are down, too."""

_OF_ONE_USER = re.compile(r"QOSMax\w*PerUser\w*|AssocMaxJobsLimit")
"""Reasons about what one user holds at once: where he holds nothing, the job alone exceeds it."""

_SPENT = re.compile(r"(?:Assoc|QOS)Grp\w*Minutes\w*|QOSUsageThreshold")
"""Reasons about the hours that an account, or a QOS, may use in a period."""

_CLOSED = re.compile(r"(Partition(?:Down|Inactive)) of (.+)")
"""Reasons that the cluster's staff end, or another partition in the site file; ours name the partition."""


def job_name_prefix(sweep: str) -> str:
    """Return the beginning of the names of a sweep's jobs, in the at most 50 characters that the plugin takes."""
    return f"accelsweep-{re.sub(r'[^A-Za-z0-9_-]', '-', sweep)}"[:50]


def listed(home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the user's jobs that wait or run for one of these `blocks`, submitted from the folder `home`."""
    return read_jobs(ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), home, blocks)


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in squeue's `listing` that were submitted from `home` for one of these `blocks`."""
    found = []
    for line in listing.splitlines():
        job, directory = _read(line)
        if job.block in blocks and Path(directory).resolve() == home.resolve():
            found.append(job)
    return found


def of_snakemake(log: str) -> list[Job] | None:
    """Return the jobs of the Snakemake that writes `log`, ended ones too; None where it has submitted none."""
    name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
    if name is None:
        return None
    listing = ask("squeue", "--noheader", "--states=all", f"--format={_FIELDS}", "--name", name[1])
    return [_read(line)[0] for line in listing.splitlines()]


def _read(line: str) -> tuple[Job, str]:
    """Return the job of a line, with its working directory. A job without a block's name in its comment has none."""
    number, state, reason, partition, nodes, elapsed, directory, comment = line.split("|", 7)
    block, named = _BLOCK.search(comment), f"{reason} of {partition}"
    reason = named if _CLOSED.fullmatch(named) else reason
    return Job(number, block[1] if block else "", state, reason, nodes, elapsed), directory


def remedy(job: Job, tried: int) -> Remedy | None:
    """Return what a job needs to run again.

    Some jobs were preempted for good, or Slurm holds them because a node could not start them. The executor plugin
    (2.8) would ask after them for ever.
    """
    if job.state in _OVER_FOR_GOOD:
        said = f"job {job.number} {_OVER_FOR_GOOD[job.state]}; it is queued again and goes on where it was"
        return Remedy(("scontrol", "requeue", job.number), said)
    if not job.reason.startswith(_COULD_NOT_START):
        return None
    said = f"job {job.number} could not be started ({job.reason})"
    if tried < _MOST_RELEASES:
        return Remedy(("scontrol", "release", job.number), f"{said}; released, so that Slurm tries again")
    return Remedy(("scancel", job.number), f"{said} for the {tried + 1}th time; cancelled")


def hopeless(reason: str) -> bool:
    """Return whether no waiting ends this reason."""
    return _NEVER.fullmatch(reason) is not None


def hopeless_alone(reason: str) -> bool:
    """Return whether no waiting ends this reason where none of the user's jobs holds anything."""
    return _OF_ONE_USER.fullmatch(reason) is not None


def of_user(states: str = "") -> list[str]:
    """Return the numbers of the user's jobs in these states (none: all that wait or run), our own job apart."""
    wanted = (f"--states={states}",) if states else ()
    listing = ask("squeue", "--me", "--noheader", *wanted, "--format=%A")
    return [number for number in listing.split() if number != os.environ.get("SLURM_JOB_ID")]


def advice(reason: str) -> str | None:
    """Return what the user can do about a reason that others can end; None where a job waits for its turn."""
    if _SPENT.fullmatch(reason):
        return (
            f"the hours of the account, or of the QOS, are spent ({reason}): jobs start when the cluster's staff grant "
            "more, or a new period begins. For another one press Ctrl-C, and change site.slurm.account or qos"
        )
    if reason == _FEW_NODES:
        return (
            f"the partition has too few nodes, or too few of them are up ({reason}): the job starts once they are. For "
            "a smaller one press Ctrl-C, and lower num_nodes or change site.slurm.partition"
        )
    if closed := _CLOSED.fullmatch(reason):
        return (
            f"partition {closed[2]} is closed ({closed[1]}): its jobs start once the cluster's staff open it. For "
            "another one press Ctrl-C, and change site.slurm.partition or cpu_partition"
        )
    return None


# Slurm behind the interface of all engines.


@dataclass(frozen=True)
class SlurmEngine:
    """Slurm at a `site`."""

    site: Site
    name: str = "Slurm"
    executor: str = "slurm"
    profile: str = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel", "scontrol")
    starts_ranks: bool = True

    def _of(self, needs: Resources) -> Slurm:
        return self.site.of_kind(needs.node_kind).slurm

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the executor plugin's resources; those of several nodes are more."""
        wide = across_nodes(needs) if needs.nodes > 1 else {}
        return {**job_resources(needs, self._of(needs)), **wide}

    def in_words(self, needs: Resources) -> str:
        """Return one job's size for a reader."""
        return in_words(needs, self._of(needs))

    def command(self, needs: Resources) -> str:
        """Return sbatch with its options."""
        return f"sbatch {sbatch_options(needs, self._of(needs))}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node."""
        return before_block(self._of(needs))

    def options(self, sweep: str) -> list[str]:
        """Return the option that names the jobs."""
        return ["--slurm-jobname-prefix", job_name_prefix(sweep)]

    def version(self) -> str:
        """Return what sbatch says of itself."""
        return ask("sbatch", "--version").strip()

    def offer(self, needs: Resources) -> JobOffer:
        """Return what `sbatch --test-only` says."""
        return offer(sbatch_options(needs, self._of(needs)))

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return the default of the job's partition, or else of the cluster."""
        return default_memory_mb(needs, self._of(needs), self.site.of_kind(needs.node_kind).count("cpu"))

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job; return its number."""
        return submit(sbatch_options(needs, self._of(needs)), command, log)

    def state(self, number: str) -> str | None:
        """Return `STATE (REASON)` of a job that has not ended."""
        return state(number)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the jobs of these blocks that wait or run."""
        return listed(home, blocks)

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return all jobs that have the name of the run in `log`."""
        del home, blocks
        return of_snakemake(log)

    def waits(self, job: Job) -> bool:
        """Return whether a job is pending."""
        return job.state == "PENDING"

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return what a job needs to run again."""
        return remedy(job, tried)

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that ends these jobs."""
        return ("scancel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return the keys that Slurm's words are about."""
        return keys_for(words)

    def full(self, refusal: str) -> str | None:
        """Return the limit on submitted jobs that Slurm names."""
        return full(refusal)

    def away(self, refusal: str) -> bool:
        """Return whether the controller did not answer."""
        return no_answer(refusal)

    def in_queue(self) -> int:
        """Return the number of the user's jobs that wait or run, our own job apart where we are in one."""
        return len(of_user())

    def hopeless(self, reason: str) -> bool:
        """Return whether no waiting ends this reason; a limit on what one user holds, where he holds nothing."""
        return hopeless(reason) or (hopeless_alone(reason) and not of_user(HOLDING))

    def advice(self, reason: str) -> str | None:
        """Return what the user can do about this reason."""
        if self.hopeless(reason):
            keys = " or ".join(f"site.slurm.{key}" for key in keys_for(reason)) or "the site file"
            return f"no waiting ends {reason}: change {keys}. If it stands at the next look, the block is left out"
        return advice(reason)

    def ended(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, by a paragraph of Snakemake's log."""
        del home
        return ended(paragraph)

    def own_words(self, lines: Sequence[str]) -> list[str]:
        """Return what Slurm itself says in a job's log."""
        return own_words(lines)


# The Slurm job that this process is in, by its environment.

_PATIENCE_SECONDS = 20.0

SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURMD_NODENAME")
"""The variables of a job's environment that a record keeps."""


@dataclass(frozen=True)
class SlurmJob:
    """A Slurm job, seen from inside."""

    number: str
    restarts: int
    engine: str = "Slurm"

    @classmethod
    def found(cls) -> SlurmJob | None:
        """Return the job that this process is in, or None."""
        restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
        number = os.environ.get("SLURM_JOB_ID")
        return None if number is None else cls(number, int(restarts) if restarts.isdigit() else 0)

    def log(self) -> str | None:
        """Return the path of the job's log, if Slurm says it."""
        command = ("scontrol", "show", "job", "--oneliner", self.number)
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
        except (OSError, subprocess.SubprocessError):
            return None  # inside a container, for example
        found = re.search(r"\bStdErr=(\S+)", answer.stdout)
        return found[1] if found else None

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return the command that starts `python` on each of `nodes` nodes, with `cpus` CPU cores.

        Where srun itself starts the container (pyxis), its options join ours: an srun in each process of another would
        number the nodes anew. The supervisor's step overlaps with this one, which is refused if it overlaps too.
        """
        own = (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}")
        step = (*own, "--kill-on-bad-exit=1", "--mpi=none", "--input=none", "--quit-on-interrupt")
        if Path(python[0]).name == "srun":
            return (*(word for word in python[:-1] if word != "--overlap"), *step, python[-1])
        return ("srun", *step, *python)


def node_name() -> str:
    """Return this node's name, by which others reach it."""
    return os.environ.get("SLURMD_NODENAME", socket.gethostname())


def node_number() -> int:
    """Return the number of this node in a run across nodes, as srun has set it."""
    number = os.environ.get("SLURM_NODEID")
    if number is None:
        raise AccelsweepError(
            "SLURM_NODEID, which srun sets, is not set here: site.slurm.container has to hand the job's variables on "
            "(podman: --env-host)"
        )
    return int(number)
