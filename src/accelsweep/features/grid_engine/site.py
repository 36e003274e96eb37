"""The options under `site.grid_engine`, and the site file that `accelsweep site NAME --from-grid-engine` drafts.

qhost lists the nodes with their queues; qconf describes queues, parallel environments and resources. The names of GPU
resources are site-specific, so the draft guesses them and explains how to look them up.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree as ET  # nosec B405 # parses the output of the cluster's own qhost

from accelsweep.config.site import JobOptions
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.schedulers.protocol import ask
from accelsweep.schedulers.slurm_site import DraftedKind, also, site_file

_RESERVED = {
    "-N": "the job's name, by which the driver finds it",
    "-o": "the job's log, which shows how it ended",
    "-e": "the job's log, which shows how it ended",
    "-j": "the job's log, which shows how it ended",
    "-terse": "the output, from which Snakemake reads the job ID",
    "-t": "the output, from which Snakemake reads the job ID",
    "-sync": "the output, from which Snakemake reads the job ID",
    "-r": "whether a lost job is requeued, which Snakemake takes care of",
    "-hold_jid": "the jobs to wait for, which site.grid_engine.exclusive=false sets",
    "-cwd": "the working directory, to which all paths in a block are relative",
    "-wd": "the working directory, to which all paths in a block are relative",
}
"""The qsub options that we set ourselves, mapped to what they determine."""


class GridEngine(JobOptions):
    """How blocks are submitted as Grid Engine jobs at a site.

    All blocks are submitted to `queue`, or only those with GPUs if `cpu_queue` is set for the others.
    `parallel_environment` allocates slots on one node. The requested amount of `memory_resource` is `mem_mb` divided by
    the number of slots. `gpu_resource` is the resource that counts GPUs; `gpu_model_resource` specifies the GPU model.
    """

    queue: str | None = None
    cpu_queue: str | None = None
    project: str | None = None
    parallel_environment: str = "smp"
    memory_resource: str = "h_vmem"
    gpu_resource: str = "gpu"
    gpu_model_resource: str = "gpu_type"

    @property
    def has_cpu_partition(self) -> bool:
        """Whether jobs without GPUs go to a different queue."""
        return self.cpu_queue is not None

    def queue_for(self, gpus: int) -> str | None:
        """Return the queue for a job with this number of GPUs; None for any queue."""
        return self.queue if gpus else self.cpu_queue or self.queue


def check_options(options: GridEngine, file_of: Callable[[str], str]) -> None:
    """Raise InputError for options in `extra` that we set ourselves, because the last duplicate would take precedence.

    `file_of` returns the file that defines a key.
    """
    try:
        reserved = [word for word in shlex.split(options.extra or "") if word in _RESERVED]
        problem = f"must not contain {reserved[0]}, {_RESERVED[reserved[0]]}: remove it" if reserved else None
    except ValueError as error:
        problem = f"is not valid shell syntax ({error})"
    if problem:
        file = file_of("site.grid_engine.extra")
        raise InputError(f"site.grid_engine.extra={options.extra}: {problem}; look in {file}")


def parse_size(text: str) -> float:
    """Parse `12`, `12.5s`, `250M` or `2.100GB` into seconds or bytes; 0 if there is no number."""
    match = re.match(r"([0-9.]+) *([KMGT]?)", text)
    return float(match[1]) * 2.0 ** (10 * " KMGT".index(match[2] or " ")) if match else 0.0


class _Node(NamedTuple):
    name: str
    memory_bytes: int
    slots: tuple[tuple[str, int], ...]
    """(name, slots) of each queue that accepts batch jobs on this node."""
    gpus: int
    gpu_model: str | None


class _Queue(NamedTuple):
    minutes: int | None
    environment: str | None
    """The parallel environment that allocates slots on one node."""


def draft(name: str) -> str:
    """Draft a site file for this login node's cluster. Raises AccelsweepError if Grid Engine does not answer."""
    gpu_resource, gpu_model_resource = _gpu_resources()
    nodes = list(_nodes(gpu_resource, gpu_model_resource))
    if not nodes:
        raise AccelsweepError("qhost lists no node with a queue that accepts jobs: ask the cluster's administrators")
    queues = {queue: _queue(queue) for queue in dict.fromkeys(queue for node in nodes for queue, _ in node.slots)}
    lines = [
        "project: null             # passed to qsub -P, if your site uses projects",
        "cpus_per_gpu: 1           # CPU cores and threads per GPU rank",
        "scratch: null             # a node-local directory; Grid Engine itself creates a TMPDIR for each job",
        f"gpu_resource: {gpu_resource or 'gpu'}         # the resource that counts GPUs: qconf -sc lists all resources",
        f"gpu_model_resource: {gpu_model_resource or 'gpu_type'} # the resource that names the GPU model",
    ]
    alike: dict[object, list[_Node]] = {}
    for node in nodes:
        alike.setdefault((node.slots, node.gpus, node.gpu_model), []).append(node)
    return site_file(name, "grid_engine", "qhost and qconf", lines, [_kind(same, queues) for same in alike.values()])


def _kind(nodes: Sequence[_Node], queues: Mapping[str, _Queue]) -> DraftedKind:
    """Return a group of identical nodes as a node kind, in the queue with the longest time limit."""
    _, slots, gpus, gpu_model = nodes[0][1:]
    _, cores, name = max((queues[name].minutes or math.inf, number, name) for name, number in slots)
    queue = queues[name]
    lines = [f"queue: {name}{also(sorted(other for other, _ in slots if other != name))}"]
    lines += [f"parallel_environment: {queue.environment}"] if queue.environment else []
    lines += [f"gpu_model: {gpu_model}"] if gpu_model else []
    lines += [f"max_minutes: {queue.minutes}"] if queue.minutes is not None else []
    no_environment = f"The queue {name} has no parallel environment with $pe_slots, so each of its jobs gets one slot."
    return DraftedKind(
        called=gpu_model or ("gpu" if gpus else "cpu"),
        listed=", ".join(node.name for node in nodes),
        nodes=len(nodes),
        cores=cores,
        memory_bytes=min(node.memory_bytes for node in nodes),
        gpus=gpus,
        gpu_model=gpu_model,
        words=lines,
        comments=() if queue.environment else (no_environment,),
    )


def _gpu_resources() -> tuple[str | None, str | None]:
    """Return the resources whose names look like a GPU count and a GPU type; None for either if it is missing."""
    lines = ask("qconf", "-sc").splitlines()
    rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    counters = [row[0] for row in rows if row[2] in ("INT", "DOUBLE") and row[5] in ("YES", "JOB")]
    labels = [row[0] for row in rows if row[2].endswith("STRING")]
    count, model = r"(?:^|_)(?:n|num_?)?gpus?(?:_?(?:count|num))?$", r"gpu_?(?:type|model|name|arch)$"
    return (
        next((name for name in counters if re.search(count, name, re.IGNORECASE)), None),
        next((name for name in labels if re.search(model, name, re.IGNORECASE)), None),
    )


def _nodes(gpu_resource: str | None, gpu_model_resource: str | None) -> Iterator[_Node]:
    """Yield the nodes with at least one queue for batch jobs."""
    try:
        listing = ET.fromstring(ask("qhost", "-q", "-xml"))  # noqa: S314 - the cluster's own output  # nosec B314
    except ET.ParseError as error:
        raise AccelsweepError(f"qhost did not print XML: {error}") from None
    for host in listing.iter("host"):
        slots = []
        for queue in host.iter("queue"):
            values = {value.get("name"): value.text or "" for value in queue.iter("queuevalue")}
            # disabled, unknown, in error, or ambiguous
            is_down = set(values.get("state_string", "")) & set("dDuEc")
            number = int(values.get("slots", "0"))
            if number and not is_down and "B" in values.get("qtype_string", "B"):
                slots.append((queue.get("name", ""), number))
        if not slots:
            continue
        name = host.get("name", "")
        memory = next((value.text or "" for value in host.iter("hostvalue") if value.get("name") == "mem_total"), "")
        declared = _qconf("-se", name).get("complex_values", "NONE")
        resources = dict(pair.strip().split("=", 1) for pair in declared.split(",") if "=" in pair)
        gpus = int(float(resources.get(gpu_resource or "", "0")))
        gpu_model = resources.get(gpu_model_resource or "") if gpus else None
        yield _Node(name, int(parse_size(memory)), tuple(slots), gpus, gpu_model)


def _queue(name: str) -> _Queue:
    # Per-node values follow the default, in brackets: 48:00:00,[g1=24:00:00]
    values = {key: value.partition(",[")[0].strip() for key, value in _qconf("-sq", name).items()}
    environments = re.split(r"[ ,]+", values.get("pe_list", "NONE"))
    on_one_node = (
        environment
        for environment in environments
        if environment != "NONE" and _qconf("-sp", environment).get("allocation_rule") == "$pe_slots"
    )
    limit = values.get("h_rt", "").split(":")  # 24:00:00, or 3600 in seconds, or INFINITY
    minutes = None
    if all(part.isdigit() for part in limit):
        minutes = sum(int(part) * 60**place for place, part in enumerate(reversed(limit))) // 60
    return _Queue(minutes, next(on_one_node, None))


def _qconf(*arguments: str) -> dict[str, str]:
    """Return the attributes that qconf prints. A backslash continues a long line."""
    lines = re.sub(r"\\\n\s*", "", ask("qconf", *arguments)).splitlines()
    return {words[0]: words[1].strip() for line in lines if len(words := line.split(None, 1)) == 2}
