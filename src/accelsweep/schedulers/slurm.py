"""Slurm: sbatch options, rejections, the queue, the nodes, how jobs end, and the job of this process."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from accelsweep.config.site import Site, Slurm
from accelsweep.errors import AccelsweepError, InputError, nearest
from accelsweep.schedulers.protocol import Job, JobEnd, JobOffer, Remedy, Resources, Value, answered, ask, prepared

RESTARTS_VARIABLE = "ACCELSWEEP_RESTARTS"
"""Carries SLURM_RESTART_COUNT past Snakemake's jobstep plugin, which removes SLURM_* from its child's environment."""

_ONE_AT_A_TIME = "--dependency=singleton"
"""Runs jobs with the same name one at a time: on a shared node, the sweep's jobs would disturb each other."""


def keep_restarts() -> None:
    """Copy the number of restarts to `RESTARTS_VARIABLE`."""
    if restarts := os.environ.get("SLURM_RESTART_COUNT"):
        os.environ[RESTARTS_VARIABLE] = restarts


def job_resources(needs: Resources, slurm: Slurm) -> dict[str, Value]:
    """Return a block's resources for Snakemake's slurm executor plugin (2.8), which turns them into sbatch options.

    None omits an option; for `mem_mb`, 0 omits it, because Snakemake rejects None there. `runtime` is in minutes,
    `mem_mb` and `gres` are per node, and `gpu` is the total over all nodes (or 0). See also `across_nodes`.
    """
    extra = ["--exclusive" if slurm.exclusive else _ONE_AT_A_TIME]
    if needs.gpus and (slurm.gpu_request == "per_node" or (slurm.gpu_request == "gpus" and needs.nodes > 1)):
        # Slurm could distribute a total unevenly over several nodes.
        extra.append(shlex.quote(f"--gpus-per-node={_gpus_of_node(needs)}"))
    extra += [slurm.extra] if slurm.extra else []
    # Last, because anywhere else, the plugin would mistake the end of a node name such as `rack-c ` for its own `-c `.
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
        "gres": f"gpu:{_gpus_of_node(needs)}" if needs.gpus and slurm.gpu_request == "gres" else "",
        "slurm_extra": " ".join(extra).strip(),
    }


def across_nodes(needs: Resources) -> dict[str, Value]:
    """Return the additions to `job_resources` for blocks on several nodes: one task per node.

    `mpi` keeps the plugin from wrapping the job in `srun -n1`; `tasks_per_gpu: 0` keeps it from treating `tasks` as a
    number per GPU.
    """
    return {"mpi": "srun", "tasks": needs.tasks, "tasks_per_gpu": 0}


def _gpus_of_node(needs: Resources) -> str:
    return f"{needs.gpu_model}:{needs.gpus // needs.nodes}" if needs.gpu_model else str(needs.gpus // needs.nodes)


def before_block(slurm: Slurm) -> str:
    """Return the shell commands that prepare a node for a block, each followed by ` && `."""
    commands = [f'export SLURM_RESTART_COUNT="${{{RESTARTS_VARIABLE}:-0}}"', *prepared(slurm, "SLURM_JOB_ID")]
    return "".join(f"{command} && " for command in commands)


def in_words(needs: Resources, slurm: Slurm) -> str:
    """Describe the size of one job in words: `1 node, 8 CPUs, 4 GPUs (h100), 64000 MB, 24 minutes, partition gpu`."""
    parts = [needs.node or _count(needs.nodes, "node"), f"{_count(needs.cpus, 'CPU')} per node"]
    if needs.gpus:
        parts.append(_count(needs.gpus, "GPU") + (f" ({needs.gpu_model})" if needs.gpu_model else ""))
    parts.append(f"{needs.mem_mb} MB" if needs.mem_mb else "the partition's default memory")
    parts += [f"at most {_count(needs.minutes, 'minute')}"] if needs.minutes else []
    partition = partition_of(needs, slurm)
    return ", ".join([*parts, f"partition {partition}" if partition else "the default partition"])


def partition_of(needs: Resources, slurm: Slurm) -> str | None:
    """Return the partition for a job with these `needs`; None means the cluster's default."""
    return slurm.partition if needs.gpus else slurm.cpu_partition or slurm.partition


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def sbatch_options(needs: Resources, slurm: Slurm) -> str:
    """Return the sbatch options of a block's job, quoted for a shell; `extra` is copied verbatim."""
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


def refuse_unfit_slurm(slurm: Slurm, where: str, file_of: Callable[[str], str]) -> None:
    """Raise InputError for values that would prevent any job from being submitted.

    `where` is the config key of these settings, in a site or a node kind; `file_of` returns the file that sets a key.
    """
    model = slurm.gpu_model
    allowed = r"[A-Za-z0-9_.-]+" if slurm.gpu_request == "per_node" else r"[A-Za-z0-9_.]+"
    if model is not None and re.fullmatch(allowed, model) is None:
        raise InputError(
            f"{where}.gpu_model={model}: must contain only letters, digits, '_' and '.', because Snakemake's "
            "slurm executor plugin accepts nothing else. If `sinfo -o %G` lists the GPU under another name, set "
            f"{where}.gpu_request to per_node. Or set gpu_model to null, and select its nodes with "
            f"{where}.constraint or {where}.partition; look in {file_of(f'{where}.gpu_model')}"
        )
    if not slurm.extra:
        return
    # The plugin rejects options that it sets itself, but only at submission.
    from snakemake_executor_plugin_slurm.validation import get_forbidden_slurm_options

    for pattern, what in get_forbidden_slurm_options().items():
        if re.search(pattern, f"{slurm.extra} "):
            known = _KEYS_FOR.get(what)
            remedy = f"use {known.replace('site.slurm', where)}" if known else "remove it"
            raise InputError(
                f"{where}.extra={slurm.extra}: must not set the {what}, which Snakemake's slurm executor plugin "
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
"""Maps the plugin's option names to our config keys."""

_FULL = re.compile(r"\b(?:Assoc|QOS)\w*(?:Max|Grp)Submit\w*")
"""Limits on queued jobs, such as AssocMaxSubmitJobLimit and QOSMaxSubmitJobPerUserLimit."""

_NO_ANSWER = re.compile(
    r"Unable to contact|[Tt]imed out|did not answer|Connection refused|[Cc]ommunication|[Tt]emporarily|"
    r"Zero Bytes|in progress|Transport endpoint"
)

_POLICY = re.compile(r"Job violates accounting/QOS policy \([^)]*\)")
"""Slurm's message for any account limit; since Slurm 22.05, the limit's name precedes this message."""

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


def queue_limit(words: str) -> str | None:
    """Return the limit on queued jobs (of a user, account or QOS) that a rejection mentions; None if there is none."""
    match = _FULL.search(words)
    return match[0] if match else None


def is_unreachable(words: str) -> bool:
    """Return whether a message means that Slurm was unreachable, rather than that it rejected a job."""
    return _NO_ANSWER.search(words) is not None


def keys_for(words: str) -> tuple[str, ...]:
    """Return the `Slurm` keys that caused a rejection or that keep a job waiting."""
    words = _POLICY.sub("", words).strip(" ;") or words
    return tuple(dict.fromkeys(key for pattern, keys in _KEYS if pattern.search(words) for key in keys))


_REFUSAL_PREFIX = re.compile(r"^(?:sbatch: (?:error: )?|allocation failure: )+", re.MULTILINE)

_STARTS = re.compile(r"to start at (\S+) using .* on nodes? (\S+)")

_ACTIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUE")


def offer(options: str) -> JobOffer:
    """Return whether Slurm would accept a job with these sbatch `options`, along with its own message."""
    accepted, output = answered("sbatch", "--test-only", *shlex.split(options), "--wrap=true")
    command = f"sbatch --test-only {options} --wrap=true"
    if accepted:
        message = " ".join(output.split())
        if (starts := _STARTS.search(message)) is None:
            return JobOffer(accepted, message, command)
        message = f"Slurm would accept it, and start it at {starts[1]} on {starts[2]}"
        return JobOffer(accepted, message, command, nodes=starts[2])
    lines = (" ".join(line.split()) for line in _REFUSAL_PREFIX.sub("", output).splitlines() if line.strip())
    message = "; ".join(dict.fromkeys(lines))
    temporary = queue_limit(message) is not None or is_unreachable(message)
    return JobOffer(accepted, message, command, keys_for(message), temporary)


_SINFO_FORMAT = "%N|%P|%a|%T|%E"
"""sinfo fields: node, partition, availability (up or down), node state, and its reason, which may contain `|`."""

_UNAVAILABLE = ("down", "drain", "fail", "error", "inval", "unknown", "maint", "future", "reboot")
"""Prefixes of the states in which a node accepts no jobs (see sinfo(1))."""

_MAX_NAMES = 8

LITTLE_MEMORY_MB = 1024
"""A job with less memory would fail: it runs two Snakemake processes, an executor, and torch."""


@dataclass(frozen=True)
class DefaultMemory:
    """The default memory of jobs that request none, in MB per node or CPU; if neither is set, they get all memory."""

    per_node: int | None = None
    per_cpu: int | None = None

    def of(self, cpus: int) -> int | None:
        """Return the MB allocated to a job with this many CPUs on a node; None means all of the node's memory."""
        return self.per_node if self.per_cpu is None else self.per_cpu * cpus


def default_memory(partitions: Iterable[str]) -> dict[str, DefaultMemory]:
    """Return each partition's default memory, falling back to the cluster's; empty if Slurm does not answer."""
    try:
        cluster = read_default_memory(ask("scontrol", "show", "config"))
        lines = ask("scontrol", "show", "partition", "--oneliner").splitlines()
    except AccelsweepError:
        return {}
    named = {found[1]: line for line in lines if (found := re.match(r"PartitionName=(\S+)", line))}
    defaults = {name: read_default_memory(named.get(name, "")) for name in partitions}
    return {name: cluster if default == DefaultMemory() else default for name, default in defaults.items()}


def read_default_memory(output: str) -> DefaultMemory:
    """Parse the default memory from the output of `scontrol show partition` or `scontrol show config`."""
    values = {key: int(number) for key, number in re.findall(r"\bDefMemPer(Node|CPU)\s*=\s*(\d+)", output)}
    return DefaultMemory(values.get("Node"), values.get("CPU"))


@dataclass(frozen=True)
class NodeRow:
    """A node in one partition, as listed by sinfo; `default` means that the partition is the default one."""

    name: str
    partition: str
    default: bool
    open: bool
    state: str
    reason: str

    @property
    def unavailable(self) -> str | None:
        """Why the node accepts no jobs now; None if it accepts jobs, even if they start later."""
        if not self.state.startswith(_UNAVAILABLE) and not self.state.endswith("*"):  # `*`: not responding
            return None
        reason = "" if self.reason in ("none", "(null)", "") else f": {self.reason}"
        return f"{self.state.rstrip('*~#!%$@^-')}{reason}"


@dataclass(frozen=True)
class Chosen:
    """The nodes to measure, in Slurm's order, and notes about omitted nodes."""

    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def chosen_nodes(asked: str, needs: Resources, slurm: Slurm) -> Chosen:
    """Return the nodes that `asked` specifies: `all` in the partition, or a list such as `gpu[1-3],gpu7`.

    `needs` describes a block's job. `all` omits nodes that are down, or to which Slurm would not send such a job.
    Raises InputError if a partition is unknown or down, or a listed node cannot be measured, and AccelsweepError if
    Slurm does not answer.
    """
    rows = _node_rows()
    selected = _in_partition(rows, partition_of(needs, slurm))
    if asked != "all":
        selected = [_named(name, selected, rows) for name in dict.fromkeys(_expanded(asked))]
    unavailable = {}
    for row in selected:
        if (why := row.unavailable or _refused(row.name, needs, slurm)) is not None:
            if asked != "all":
                raise InputError(f"--nodes: {row.name} cannot be measured ({why}): remove it, or use `--nodes all`")
            unavailable[row.name] = why
    names = tuple(row.name for row in selected if row.name not in unavailable)
    if not names:
        reasons = _shortened([f"{name} ({why})" for name, why in unavailable.items()])
        raise InputError(f"no node of {_partition_name(selected)} can be measured: {reasons}")
    return Chosen(names, tuple(f"node {name} is left out: {why}" for name, why in unavailable.items()))


def refuse_unknown_partition(needs: Resources, slurm: Slurm) -> None:
    """Raise InputError if the partition is down or unknown; for an unknown one, suggest the closest known name."""
    _in_partition(_node_rows(), partition_of(needs, slurm))


def _refused(node: str, needs: Resources, slurm: Slurm) -> str | None:
    """Return Slurm's reason for not sending a block to this node; None if Slurm would send one, even if only later."""
    offered = offer(sbatch_options(needs.model_copy(update={"node": node}), slurm))
    return None if offered.accepted or offered.temporary else offered.message


def _node_rows() -> list[NodeRow]:
    rows = []
    for line in ask("sinfo", "--noheader", "--Node", "--all", f"--format={_SINFO_FORMAT}").splitlines():
        if line.strip():
            name, partition, up, state, reason = line.split("|", 4)
            default = partition.endswith("*")
            rows.append(NodeRow(name, partition.rstrip("*"), default, up == "up", state, reason.strip()))
    return rows


def _in_partition(rows: Sequence[NodeRow], partition: str | None) -> list[NodeRow]:
    """Return the nodes of a partition, or of a comma-separated list of partitions, each node once."""
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
    listed = [row for row in rows if row.partition in wanted]
    up = [row for row in listed if row.open]
    if not up:
        raise InputError(f"{_partition_name(listed)} is down: choose another one with site.slurm.partition")
    return list({row.name: row for row in up}.values())


def _expanded(asked: str) -> list[str]:
    """Expand a list in Slurm's notation into individual names."""
    try:
        names = ask("scontrol", "show", "hostnames", asked).split()
    except AccelsweepError as error:
        raise InputError(f"--nodes {asked} is not a list of nodes such as gpu[1-3],gpu7 ({error})") from None
    if not names:
        raise InputError("--nodes names no node: use `all`, or a list such as gpu[1-3],gpu7")
    return names


def _named(name: str, selected: Sequence[NodeRow], rows: Sequence[NodeRow]) -> NodeRow:
    """Return the row of a node that the user named. Raises InputError if the partition has no such node."""
    for row in selected:
        if row.name == name:
            return row
    partition, elsewhere = _partition_name(selected), [row.partition for row in rows if row.name == name]
    if elsewhere:
        raise InputError(
            f"--nodes: {name} is not in {partition} but in {', '.join(elsewhere)}: remove it, or change "
            "site.slurm.partition"
        )
    names = [row.name for row in selected]
    raise InputError(f"--nodes: there is no node '{name}'{nearest(name, names)}; {partition} has {_shortened(names)}")


def _partition_name(rows: Sequence[NodeRow]) -> str:
    return f"partition {','.join(dict.fromkeys(row.partition for row in rows))}"


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


_REFUSED = re.compile(
    r"message: SLURM (?:sbatch|job submission) failed\. The error message was '?(.*?)'?\.?\n    \w", re.S
)

_NOT_SUBMITTED = re.compile(
    r"message: Job submission failed with exception: (.+?)(?:For further error details|\n    \w)", re.S
)

_ENDED = re.compile(r"message: SLURM-job '(\d+)' failed.*?SLURM status is: '(\w+)'", re.DOTALL)

_JOB_LOG = re.compile(r"^    log: .*?(\S+/\d+\.log)", re.MULTILINE)

_SAYS = re.compile(r"(?:slurmstepd|slurmd|srun): (?:error|fatal): (?!.*[Ee]xited with exit code)(.+)")

_MESSAGE_PREFIX = re.compile(r"^(?:sbatch|slurmstepd): (?:error|fatal): ")

_WHOLE_JOB = re.compile(r"exceeded .*memory limit(?! at some point)", re.IGNORECASE)

_MEMORY = re.compile(rf"{_WHOLE_JOB.pattern}|oom[-_ ]?kill|out of memory", re.IGNORECASE)


def out_of_memory_scope(line: str) -> Literal["job", "process"] | None:
    """Return what Slurm killed for running out of memory, according to a log line; None if it reports no such kill."""
    if not line.startswith(("slurm", "srun:")) or not _MEMORY.search(line):
        return None
    return "job" if _WHOLE_JOB.search(line) else "process"


_FIELDS = "%i|%T|%r|%P|%N|%M|%Z|%k"  # id, state, reason, partition, nodes, elapsed, working directory, comment

_BLOCK = re.compile(r"_(b[0-9a-f]{12})$")
"""The block's name, which the executor plugin writes at the end of a job's comment."""

_LAUNCH_FAILED = "launch fail"  # "launch failed requeued held", "launch failure limit exceeded requeued held"

_MAX_RELEASES = 3

_NEEDS_REQUEUE = {"PREEMPTED": "was preempted", "NODE_FAIL": "lost its node"}
"""Final states that the plugin treats as temporary."""

HOLDING = "RUNNING,COMPLETING,CONFIGURING,SUSPENDED"
"""The states in which a job counts towards its user's limits."""

_NEVER = re.compile(
    r"PartitionTimeLimit|BadConstraints|Invalid(Account|QOS)|DependencyNeverSatisfied|(Assoc|QOS)\w*PerJob\w*"
    r"|QOSMin\w+|\w*NotAllowed"
)
"""Reasons (see squeue(1)) for which a job waits until its request or the cluster's limits are changed."""

_FEW_NODES = "PartitionNodeLimit"
"""The reason that Slurm reports both if a job requests too many nodes and if nodes are down."""

_OF_ONE_USER = re.compile(r"QOSMax\w*PerUser\w*|AssocMaxJobsLimit")
"""Limits on one user's concurrent use; if the user has no other active jobs, the job exceeds the limit on its own."""

_SPENT = re.compile(r"(?:Assoc|QOS)Grp\w*Minutes\w*|QOSUsageThreshold")
"""Limits on the hours that an account or a QOS may use per period."""

_CLOSED = re.compile(r"(Partition(?:Down|Inactive)) of (.+)")
"""Reasons that only the cluster's administrators can resolve, followed by the partition, which `_read_job` appends."""


def job_name_prefix(sweep: str) -> str:
    """Return the prefix of a sweep's job names, within the 50 characters that the plugin allows."""
    return f"accelsweep-{re.sub(r'[^A-Za-z0-9_-]', '-', sweep)}"[:50]


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in squeue's `listing` that were submitted from `home` for one of these `blocks`."""
    jobs = map(_read_job, listing.splitlines())
    return [job for job, folder in jobs if job.block in blocks and Path(folder).resolve() == home.resolve()]


def _read_job(line: str) -> tuple[Job, str]:
    """Return the job in a line of squeue output and its working directory; `block` is "" if the comment has none."""
    number, state, reason, partition, nodes, elapsed, directory, comment = line.split("|", 7)
    block, with_partition = _BLOCK.search(comment), f"{reason} of {partition}"
    reason = with_partition if _CLOSED.fullmatch(with_partition) else reason
    return Job(number, block[1] if block else "", state, reason, nodes, elapsed), directory


def never_starts(reason: str) -> bool:
    """Return whether a job that waits for this reason will never start."""
    return _NEVER.fullmatch(reason) is not None


def never_starts_alone(reason: str) -> bool:
    """Return whether a job that waits for this reason will never start if the user has no other active jobs."""
    return _OF_ONE_USER.fullmatch(reason) is not None


def of_user(states: str = "") -> list[str]:
    """Return the job numbers of the user's jobs in these states (default: waiting and running), except our own job."""
    wanted = (f"--states={states}",) if states else ()
    listing = ask("squeue", "--me", "--noheader", *wanted, "--format=%A")
    return [number for number in listing.split() if number != os.environ.get("SLURM_JOB_ID")]


def advice(reason: str) -> str | None:
    """Return what the user can do about a reason that only others can resolve; None if the job is waiting its turn."""
    if _SPENT.fullmatch(reason):
        return (
            f"the account or QOS has used up its hours ({reason}): jobs start when the cluster's administrators grant "
            "more, or a new period begins. To use another one, press Ctrl-C and change site.slurm.account or qos"
        )
    if reason == _FEW_NODES:
        return (
            f"the partition has too few nodes, or too few of them are up ({reason}): the job starts once they are. To "
            "use fewer nodes, press Ctrl-C and lower num_nodes or change site.slurm.partition"
        )
    if closed := _CLOSED.fullmatch(reason):
        return (
            f"partition {closed[2]} is closed ({closed[1]}): its jobs start once the cluster's administrators open it. "
            "To use another one, press Ctrl-C and change site.slurm.partition or cpu_partition"
        )
    return None


@dataclass(frozen=True)
class SlurmScheduler:
    """Slurm at a `site`; see `protocol.Scheduler`."""

    site: Site
    name: str = "Slurm"
    executor: str = "slurm"
    profile: str = "slurm"
    programs: tuple[str, ...] = ("sbatch", "squeue", "scancel", "scontrol")
    starts_ranks: bool = True

    def _settings(self, needs: Resources) -> Slurm:
        return self.site.of_kind(needs.node_kind).slurm

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the executor plugin's resources, including additional ones for blocks on several nodes."""
        return {**job_resources(needs, self._settings(needs)), **(across_nodes(needs) if needs.nodes > 1 else {})}

    def in_words(self, needs: Resources) -> str:
        """Describe the size of one job in words."""
        return in_words(needs, self._settings(needs))

    def command(self, needs: Resources) -> str:
        """Return the sbatch command with its options."""
        return f"sbatch {sbatch_options(needs, self._settings(needs))}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node."""
        return before_block(self._settings(needs))

    def options(self, sweep: str) -> list[str]:
        """Return the option that sets the prefix of job names."""
        return ["--slurm-jobname-prefix", job_name_prefix(sweep)]

    def version(self) -> str:
        """Return the output of `sbatch --version`."""
        return ask("sbatch", "--version").strip()

    def offer(self, needs: Resources) -> JobOffer:
        """Return the result of `sbatch --test-only`."""
        return offer(sbatch_options(needs, self._settings(needs)))

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return the default of the job's partition (the smallest if there are several), or else the cluster's."""
        slurm = self._settings(needs)
        partition = partition_of(needs, slurm)
        if partition is None:
            partition = next((row.partition for row in _node_rows() if row.default), "")
        cpus = self.site.of_kind(needs.node_kind).count("cpu") if slurm.exclusive else needs.cpus
        defaults = [default.of(cpus) for default in default_memory(partition.split(",")).values()]
        return min((memory for memory in defaults if memory is not None), default=None)

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job for `accelsweep doctor`; return its number."""
        options = [*shlex.split(sbatch_options(needs, self._settings(needs))), f"--output={log}"]
        output = ask("sbatch", "--parsable", *options, "--job-name=accelsweep-doctor", f"--wrap={command}")
        return output.strip().partition(";")[0]

    def state(self, number: str) -> str | None:
        """Return `STATE (REASON)` of a job that has not ended."""
        output = ask("squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%T|%r").strip()
        state, _, reason = output.partition("|")
        return f"{state} ({reason})" if state.startswith(_ACTIVE) else None

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the user's waiting and running jobs of these blocks."""
        return read_jobs(ask("squeue", "--me", "--noheader", f"--format={_FIELDS}"), home, blocks)

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return all jobs whose name is the run ID in `log`."""
        del home, blocks
        name = re.search(r"^SLURM run ID: (\S+)", log, re.MULTILINE)
        if name is None:
            return None
        listing = ask("squeue", "--noheader", "--states=all", f"--format={_FIELDS}", "--name", name[1])
        return [_read_job(line)[0] for line in listing.splitlines()]

    def waits(self, job: Job) -> bool:
        """Return whether a job is pending."""
        return job.state == "PENDING"

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return how to requeue a job that was preempted or lost its node, or release one held after a failed launch.

        The executor plugin (2.8) would poll either job forever.
        """
        if job.state in _NEEDS_REQUEUE:
            message = f"job {job.number} {_NEEDS_REQUEUE[job.state]}; it is requeued and resumes where it stopped"
            return Remedy(("scontrol", "requeue", job.number), message)
        if not job.reason.startswith(_LAUNCH_FAILED):
            return None
        message = f"job {job.number} could not be started ({job.reason})"
        if tried < _MAX_RELEASES:
            return Remedy(("scontrol", "release", job.number), f"{message}; released, so that Slurm tries again")
        return Remedy(("scancel", job.number), f"{message} for the {tried + 1}th time; cancelled")

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that cancels these jobs."""
        return ("scancel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return the keys to which Slurm's message refers."""
        return keys_for(words)

    def queue_limit(self, refusal: str) -> str | None:
        """Return the limit on queued jobs that Slurm reports."""
        return queue_limit(refusal)

    def is_unreachable(self, refusal: str) -> bool:
        """Return whether the controller did not answer."""
        return is_unreachable(refusal)

    def in_queue(self) -> int:
        """Return the number of the user's waiting and running jobs, except our own job."""
        return len(of_user())

    def never_starts(self, reason: str) -> bool:
        """Return whether a job with this reason will never start, including one that alone exceeds the user's limit."""
        return never_starts(reason) or (never_starts_alone(reason) and not of_user(HOLDING))

    def advice(self, reason: str) -> str | None:
        """Return what the user can do about this reason."""
        if self.never_starts(reason):
            keys = " or ".join(f"site.slurm.{key}" for key in keys_for(reason)) or "the site file"
            return f"waiting does not resolve {reason}: change {keys}. If it persists, the block is skipped"
        return advice(reason)

    def job_end(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job failed, from a paragraph of Snakemake's log; None if it does not concern a Slurm job."""
        del home
        if refused := _REFUSED.search(paragraph) or _NOT_SUBMITTED.search(paragraph):
            lines = (_MESSAGE_PREFIX.sub("", line.strip()) for line in refused[1].splitlines())
            return JobEnd(refusal="\n".join(lines))
        if (end := _ENDED.search(paragraph)) is None:
            return None
        log = _JOB_LOG.search(paragraph)
        return JobEnd(number=end[1], state=end[2], log=Path(log[1]) if log else None)

    def own_messages(self, lines: Sequence[str]) -> list[str]:
        """Return Slurm's own error messages in a job's log."""
        return [message[1] for line in lines if (message := _SAYS.search(line))]


_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class SlurmJob:
    """The Slurm job that this process runs in."""

    number: str
    restarts: int
    scheduler: str = "Slurm"

    @classmethod
    def found(cls) -> SlurmJob | None:
        """Return the job of this process, or None."""
        restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
        number = os.environ.get("SLURM_JOB_ID")
        return None if number is None else cls(number, int(restarts) if restarts.isdigit() else 0)

    def log(self) -> str | None:
        """Return the path of the job's log, if Slurm reports it."""
        command = ("scontrol", "show", "job", "--oneliner", self.number)
        try:
            result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_SECONDS)
        except (OSError, subprocess.SubprocessError):
            return None  # for example, inside a container
        path = re.search(r"\bStdErr=(\S+)", result.stdout)
        return path[1] if path else None

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return the command that starts `python` on each of `nodes` nodes, with `cpus` CPU cores.

        If srun itself starts the container (pyxis), its options are merged with ours, because a nested srun would
        renumber the nodes. The executor's step is started with `--overlap`; Slurm rejects this step if it sets that
        option too.
        """
        own = (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}")
        step = (*own, "--kill-on-bad-exit=1", "--mpi=none", "--input=none", "--quit-on-interrupt")
        if Path(python[0]).name == "srun":
            return (*(word for word in python[:-1] if word != "--overlap"), *step, python[-1])
        return ("srun", *step, *python)


def node_name() -> str:
    """Return the name under which other nodes can reach this one."""
    return os.environ.get("SLURMD_NODENAME", socket.gethostname())


def node_number() -> int:
    """Return the number of this node in a run on several nodes, as set by srun."""
    number = os.environ.get("SLURM_NODEID")
    if number is None:
        raise AccelsweepError(
            "SLURM_NODEID, which srun sets, is not set here: site.slurm.container must pass the job's variables "
            "through (podman: --env-host)"
        )
    return int(number)
