"""A draft of a site file from what Grid Engine says of its nodes: text with comments, to be read and completed.

qhost lists nodes with the queues there, and qconf tells of queues, parallel environments and resources. Each site
chooses how it calls GPUs as resources, so their names are guessed, and the draft says so.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from accelsweep.config.site import JobSettings
from accelsweep.errors import AccelsweepError, InputError
from accelsweep.schedulers.protocol import ask
from accelsweep.schedulers.slurm_site import DraftedKind, also, site_file


class GridEngine(JobSettings):
    """The form in which blocks become Grid Engine jobs at a site.

    `queue` takes every block, or those with GPUs where `cpu_queue` takes the others. `parallel_environment` grants
    slots of one node. `memory_resource` is asked for with `mem_mb`, divided by the slots. `gpu_resource` counts GPUs of
    a job, and `gpu_model_resource` names their type.
    """

    queue: str | None = None
    cpu_queue: str | None = None
    project: str | None = None
    parallel_environment: str = "smp"
    memory_resource: str = "h_vmem"
    gpu_resource: str = "gpu"
    gpu_model_resource: str = "gpu_type"

    @property
    def cpu_apart(self) -> bool:
        """Whether jobs without GPUs go to another queue."""
        return self.cpu_queue is not None


_GPUS = re.compile(r"(?:^|_)(?:n|num_?)?gpus?(?:_?(?:count|num))?$", re.IGNORECASE)

_GPU_MODEL = re.compile(r"gpu_?(?:type|model|name|arch)$", re.IGNORECASE)

_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}

_DOWN = "dDuEc"
"""Letters of a queue's state on a node that takes no job: disabled, unknown, in error, ambiguous."""


@dataclass(frozen=True)
class DraftedQueue:
    """A queue: its time limit, and the parallel environment that grants slots of one node, None where it has none."""

    name: str
    minutes: int | None
    environment: str | None


@dataclass(frozen=True)
class Host:
    """A node: its memory in bytes, the slots of each queue there, and its GPUs."""

    name: str
    memory_bytes: int
    slots: tuple[tuple[str, int], ...]
    gpus: int = 0
    gpu_model: str | None = None


@dataclass(frozen=True)
class Resource:
    """The resources that count the GPUs of a node and name their type; None where the cluster has none so called."""

    gpus: str | None
    gpu_model: str | None


def draft(name: str) -> str:
    """Return a site file for the cluster of this login node. Raises AccelsweepError where nobody answers."""
    resource = read_resources(ask("qconf", "-sc"))
    hosts = [_with_gpus(host, resource) for host in read_hosts(ask("qhost", "-q", "-xml"))]
    if not hosts:
        raise AccelsweepError("qhost lists no node with a queue that takes jobs: ask the cluster's staff")
    queues = {queue: _queue(queue) for queue in dict.fromkeys(queue for host in hosts for queue, _ in host.slots)}
    words = [
        "project: null             # what qsub -P takes, if your site has projects",
        "cpus_per_gpu: 1           # CPU cores and threads of each GPU's rank",
        "scratch: null             # a folder of the node; Grid Engine makes a TMPDIR for each job by itself",
        f"gpu_resource: {resource.gpus or 'gpu'}         # counts the GPUs of a job: qconf -sc lists all resources",
        f"gpu_model_resource: {resource.gpu_model or 'gpu_type'} # names their type",
    ]
    alike: dict[object, list[Host]] = {}
    for host in hosts:
        alike.setdefault((host.slots, host.gpus, host.gpu_model), []).append(host)
    return site_file(name, "grid_engine", "qhost and qconf", words, [_kind(same, queues) for same in alike.values()])


def _kind(same: Sequence[Host], queues: Mapping[str, DraftedQueue]) -> DraftedKind:
    first = same[0]
    slots = dict(first.slots)
    longest = [(queues[name].minutes or math.inf, number, name) for name, number in slots.items()]
    queue = queues[max(longest)[2]]
    words = [f"queue: {queue.name}{also(sorted(slots.keys() - {queue.name}))}"]
    words += [f"parallel_environment: {queue.environment}"] if queue.environment else []
    words += [f"gpu_model: {first.gpu_model}"] if first.gpu_model else []
    words += [f"max_minutes: {queue.minutes}"] if queue.minutes is not None else []
    lacking = f"The queue {queue.name} has no parallel environment with $pe_slots: its jobs get one slot each."
    return DraftedKind(
        called=first.gpu_model or ("gpu" if first.gpus else "cpu"),
        listed=", ".join(host.name for host in same),
        nodes=len(same),
        cores=slots[queue.name],
        memory_bytes=min(host.memory_bytes for host in same),
        gpus=first.gpus,
        gpu_model=first.gpu_model,
        words=words,
        comments=() if queue.environment else (lacking,),
    )


def read_hosts(listing: str) -> list[Host]:
    """Return the nodes in the XML of `qhost -q` that have a queue which takes jobs."""
    try:
        found = ET.fromstring(listing)  # noqa: S314 - the cluster's own words  # nosec B314
    except ET.ParseError as error:
        raise AccelsweepError(f"qhost's answer is no XML: {error}") from None
    hosts = []
    for host in found.iter("host"):
        slots = tuple((name, number) for name, number in map(_slots, host.iter("queue")) if number)
        if slots:
            told = {each.get("name"): each.text or "" for each in host.iter("hostvalue")}
            hosts.append(Host(host.get("name", ""), _bytes(told.get("mem_total", "")), slots))
    return hosts


def _slots(queue: ET.Element) -> tuple[str, int]:
    """Return the name of a queue on a node, and its slots there, 0 where it takes no job."""
    told = {each.get("name"): each.text or "" for each in queue.iter("queuevalue")}
    away = set(told.get("state_string", "")) & set(_DOWN) or "B" not in told.get("qtype_string", "B")
    return queue.get("name", ""), 0 if away else int(told.get("slots", "0"))


def _with_gpus(host: Host, resource: Resource) -> Host:
    values = _pairs(read_object(ask("qconf", "-se", host.name)).get("complex_values", "NONE"))
    gpus = values.get(resource.gpus or "", "0")
    model = values.get(resource.gpu_model or "") if float(gpus) else None
    return Host(host.name, host.memory_bytes, host.slots, int(float(gpus)), model)


def _queue(name: str) -> DraftedQueue:
    told = read_object(ask("qconf", "-sq", name))
    environments = re.split(r"[ ,]+", _default(told.get("pe_list", "NONE")))
    of_one_node = (one for one in environments if one != "NONE" and _rule(one) == "$pe_slots")
    return DraftedQueue(name, _minutes(_default(told.get("h_rt", ""))), next(of_one_node, None))


def _rule(environment: str) -> str | None:
    return read_object(ask("qconf", "-sp", environment)).get("allocation_rule")


def read_resources(listing: str) -> Resource:
    """Return the resources in the answer of `qconf -sc` that are called as GPUs and their types often are."""
    rows = [line.split() for line in listing.splitlines() if line.strip() and not line.startswith("#")]
    countable = (row[0] for row in rows if row[2] in ("INT", "DOUBLE") and row[5] in ("YES", "JOB"))
    named = (row[0] for row in rows if row[2].endswith("STRING"))
    return Resource(_first(countable, _GPUS), _first(named, _GPU_MODEL))


def _first(names: Iterable[str], wanted: re.Pattern[str]) -> str | None:
    return next((name for name in names if wanted.search(name)), None)


def read_object(told: str) -> dict[str, str]:
    """Return the attributes in an answer of qconf. Long lines go on after a backslash."""
    lines = re.sub(r"\\\n\s*", "", told).splitlines()
    return {words[0]: words[1].strip() for line in lines if len(words := line.split(None, 1)) == 2}


def _pairs(values: str) -> dict[str, str]:
    return dict(pair.strip().split("=", 1) for pair in values.split(",") if "=" in pair)


def _default(value: str) -> str:
    """Return the value of a queue without those of single nodes, which stand in brackets."""
    return value.partition(",[")[0].strip()


def _minutes(limit: str) -> int | None:
    """Return a time limit such as `24:00:00` or `3600` (seconds) in minutes; None for INFINITY."""
    parts = limit.split(":")
    if not all(part.isdigit() for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return seconds // 60


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9.]+)([KMGT]?)", text)
    return int(float(found[1]) * 2 ** _UNITS[found[2]]) if found else 0


# Options of qsub that a site may not state: a job is found, followed and put in turn by them.

_OURS = {
    "-N": "the job's name, by which the head finds it",
    "-o": "the job's log, which tells how it ended",
    "-e": "the job's log, which tells how it ended",
    "-j": "the job's log, which tells how it ended",
    "-terse": "the answer, in which Snakemake reads the job's number",
    "-t": "the answer, in which Snakemake reads the job's number",
    "-sync": "the answer, in which Snakemake reads the job's number",
    "-r": "whether a lost job is queued again, which Snakemake does",
    "-hold_jid": "the jobs that it waits for, which keep their turn with site.grid_engine.exclusive=false",
    "-cwd": "the folder, to which all paths of a block belong",
    "-wd": "the folder, to which all paths of a block belong",
}


def refuse_unfit_grid_engine(settings: GridEngine, file_of: Callable[[str], str]) -> None:
    """Raise InputError for options in `extra` that we set ourselves; `file_of` names the file of a key.

    They come behind ours, and of two alike qsub takes the last.
    """
    try:
        words = shlex.split(settings.extra or "")
    except ValueError as error:
        words, why = [], f"is no shell's words ({error})"
    else:
        why = next((f"must not state {word}, {_OURS[word]}: leave it out" for word in words if word in _OURS), "")
    if why:
        raise InputError(f"site.grid_engine.extra={settings.extra}: {why}; look in {file_of('site.grid_engine.extra')}")
