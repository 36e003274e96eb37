"""Grid Engine: blocks are submitted with qsub and found in qstat by job name; qacct reports how they ended."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from accelsweep.config.site import Site
from accelsweep.errors import AccelsweepError
from accelsweep.features.grid_engine.site import GridEngine, parse_size
from accelsweep.plain_json import sha256_text
from accelsweep.records.plan import BLOCK_NAME
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import Job, JobEnd, JobOffer, Remedy, Resources, Value, answered, ask, prepared
from accelsweep.significant_digits import count_of

ONE_AT_A_TIME = "--one-at-a-time"
"""An option of our `submit` command that makes a sweep's jobs run one at a time, because they may share a node."""

LOGS = "grid-engine-logs"
"""The folder for job logs, in the working directory."""

_COMMAND = ("-b", "y", "-shell", "n")

_MAX_RELEASES = 3

_MAX_REASONS = 20
"""`qstat -j` is slow for each job, so reasons are queried only for the first few waiting jobs."""

_QSTAT_ROW = re.compile(
    r"^ *(?P<number>\d+) +\S+ +\S+ +\S+ +(?P<state>[a-zA-Z]+) +(?P<since>\S+ \S+) +(?:(?P<queue>\S+@\S+) +)?\d+.*\n"
    r" +Full jobname: +(?P<name>\S+)",
    re.MULTILINE,
)

_SUBMISSION_FAILED = re.compile(
    r"message: Error submitting jobscript \(exit code \d+\):\n(.*?)For further error details", re.DOTALL
)

_QUEUE_FULL = re.compile(r"job rejected: ((?:only \d+ jobs are allowed|currently \d+ jobs?)[^\n]*)")

_NO_ANSWER = re.compile(r"unable to (?:contact|send message to) qmaster|got send error|can't connect to service", re.I)

_LOG_PREFIX = "Grid Engine: "

_OUT_OF_MEMORY = "more memory than its limit"


def job_name(sweep: str, home: Path, block: str) -> str:
    """Return the name of a block's job. It encodes the sweep, folder and block, because qstat lists none of them."""
    return f"accelsweep-{re.sub(r'[^A-Za-z0-9_-]', '-', sweep)[:50]}-{_digest(home)}-{block}"


def block_of(name: str, home: Path) -> str | None:
    """Return the block of the job with this name; None unless the job was submitted from `home`."""
    match = re.fullmatch(f"accelsweep-.+-{_digest(home)}-({BLOCK_NAME})", name)
    return match[1] if match else None


def _digest(home: Path) -> str:
    return sha256_text(str(home.resolve()))[:6]


def log_path(number: str, home: Path) -> Path:
    """Return the path of a job's log."""
    return home / LOGS / f"{number}.log"


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in the output of `qstat -r` that were submitted from `home` for one of these `blocks`."""
    jobs = []
    for row in _QSTAT_ROW.finditer(listing):
        block = block_of(row["name"], home)
        if block is not None and block in blocks:
            elapsed = _elapsed(row["since"]) if row["queue"] else ""
            jobs.append(Job(row["number"], block, row["state"], "None", row["queue"] or "", elapsed))
    return jobs


def _elapsed(since: str) -> str:
    try:
        began = datetime.strptime(since, "%m/%d/%Y %H:%M:%S")  # noqa: DTZ007 - qstat prints the cluster's local time
    except ValueError:
        return "some time"
    return str(datetime.now() - began).partition(".")[0]  # noqa: DTZ005 - the same


def _reason(number: str) -> str:
    """Return why a job is waiting. At many sites the scheduler does not publish the reason (`schedd_job_info`)."""
    try:
        details = ask("qstat", "-j", number)
    except AccelsweepError:  # the job has ended in the meantime
        return "None"
    for pattern in (r"^error reason +\d+: +(.*)", r"^scheduling info: +(.*)"):
        if match := re.search(pattern, details, re.MULTILINE):
            return match[1].strip()
    return "no reason given"


# How a job ended. Grid Engine does not log when it kills a job, so we append a line based on qacct to the job's log.


def read_qacct(output: str) -> dict[str, str]:
    """Return the fields of the last job in qacct's output, because job IDs wrap around after ten million."""
    lines = output.rpartition("=====")[2].splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip("= "))
    return {pair[0]: " ".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def succeeded(account: Mapping[str, str]) -> bool:
    """Return whether a job succeeded, based on its qacct fields."""
    return all(account.get(field, "").split()[:1] == ["0"] for field in ("failed", "exit_status"))


def log_line(account: Mapping[str, str]) -> str | None:
    """Return a log line about a job that Grid Engine killed, naming the exceeded limit or else qacct's fields.

    None for a job that exited on its own: its log is more detailed.
    """

    def number(field: str) -> float:
        return parse_size(account.get(field, ""))

    if account.get("failed", "").split()[:1] == ["0"] and number("exit_status") < 128:
        return None
    limits = dict(re.findall(r"(\w+)=([0-9.]+[KMGT]?)", account.get("category", "")))
    fields = f"failed {account.get('failed')}, exit_status {account.get('exit_status')}"
    if "h_rt" in limits and number("ru_wallclock") >= parse_size(limits["h_rt"]):
        return f"{_LOG_PREFIX}it reached its time limit, {limits['h_rt']} s ({fields})"
    slots = number("slots") if "slots" in account else 1
    for name in ("h_vmem", "h_rss", "s_vmem"):
        if name in limits and number("maxvmem") >= slots * parse_size(limits[name]):
            fields += f", maxvmem {account.get('maxvmem')}"
            return f"{_LOG_PREFIX}it used {_OUT_OF_MEMORY}, {limits[name]} per slot ({fields})"
    return f"{_LOG_PREFIX}{fields}"


def is_out_of_memory(line: str) -> bool:
    """Return whether this line of a job's log reports an out-of-memory kill."""
    return line.startswith(_LOG_PREFIX) and _OUT_OF_MEMORY in line


@dataclass(frozen=True)
class GridEngineScheduler:
    """Grid Engine at a `site`, with the interface `schedulers.protocol.Scheduler`."""

    site: Site
    name: str = "Grid Engine"
    executor: str = "cluster-generic"
    profile: str = "grid_engine"
    programs: tuple[str, ...] = ("qsub", "qstat", "qdel", "qmod")
    starts_ranks: bool = False

    def _options(self, needs: Resources) -> GridEngine:
        options = self.site.of_kind(needs.node_kind).job_options_for("grid_engine")
        assert isinstance(options, GridEngine)
        return options

    def _slots(self, needs: Resources) -> int:
        """Return the number of slots for a job: one per CPU core, or all slots of a node for an exclusive job."""
        cores = self.site.of_kind(needs.node_kind).count("cpu") if self._options(needs).exclusive else 0
        return max(needs.cpus, cores)

    def _qsub_options(self, needs: Resources) -> str:
        """Return the qsub options, quoted for a shell, with `extra` unchanged.

        Grid Engine expects memory per slot and time in seconds.
        """
        options, slots = self._options(needs), self._slots(needs)
        requests = {
            "h_rt": needs.minutes * 60 if needs.minutes else None,
            options.memory_resource: f"{math.ceil(needs.mem_mb / slots)}M" if needs.mem_mb else None,
            options.gpu_resource: needs.gpus or None,
            options.gpu_model_resource: needs.gpu_model if needs.gpus else None,
        }
        words = [] if options.exclusive else [ONE_AT_A_TIME]
        words += ["-pe", options.parallel_environment, str(slots)] if slots > 1 else []
        words += [word for name, value in requests.items() if value is not None for word in ("-l", f"{name}={value}")]
        queue = options.queue_for(gpus=needs.gpus)
        words += ["-q", queue] if queue else []
        words += ["-P", options.project] if options.project else []
        return f"{shlex.join(words)} {options.extra or ''}".strip()

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the resource that the profile passes to our `submit` command."""
        return {"grid_engine": self._qsub_options(needs)}

    def in_words(self, needs: Resources) -> str:
        """Return a job's size: `8 slots, 4 GPUs (h100), 64000 MB, at most 24 minutes, queue gpu.q`."""
        parts = [count_of(self._slots(needs), "slot")]
        if needs.gpus:
            parts.append(count_of(needs.gpus, "GPU") + (f" ({needs.gpu_model})" if needs.gpu_model else ""))
        parts += [f"{needs.mem_mb} MB"] if needs.mem_mb else []
        parts += [f"at most {count_of(needs.minutes, 'minute')}"] if needs.minutes else []
        queue = self._options(needs).queue_for(gpus=needs.gpus)
        return ", ".join([*parts, f"queue {queue}" if queue else "any queue"])

    def command(self, needs: Resources) -> str:
        """Return the qsub command line of a job."""
        return f"qsub {self._qsub_options(needs)}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node, each followed by ` && `."""
        return "".join(f"{command} && " for command in prepared(self._options(needs), "JOB_ID"))

    def options(self, sweep: str) -> list[str]:
        """Return no Snakemake options: the profile contains them all."""
        del sweep
        return []

    def version(self) -> str:
        """Return the version that qstat prints."""
        return f"{self.name} ({ask('qstat', '-help').partition(chr(10))[0].strip()})"

    def offer(self, needs: Resources) -> JobOffer:
        """Check with `qsub -w v` whether an empty cluster could run such a job."""
        command = ["qsub", "-w", "v", *self._plain_options(needs), *_COMMAND, "true"]
        accepted, output = answered(*command)
        message = re.sub(r"^(Unable to run job: |verification: |Exiting\.?$)", "", output, flags=re.MULTILINE)
        message = " ".join(message.split())
        temporary = not accepted and (self.queue_limit(message) is not None or self.is_unreachable(message))
        return JobOffer(accepted, message, shlex.join(command), temporary=temporary)

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return None, because a queue's default memory limit is unknown."""
        del needs
        return None

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job outside Snakemake and return its number."""
        fixed = ("-terse", "-cwd", "-V", "-j", "y", "-w", "e", "-r", "n", "-N", "accelsweep-doctor", "-o", str(log))
        qsub = ("qsub", *fixed, *self._plain_options(needs), *_COMMAND, "/bin/bash", "-c", command)
        return ask(*qsub, base=for_jobs(os.environ)).strip()

    def _plain_options(self, needs: Resources) -> list[str]:
        return [word for word in shlex.split(self._qsub_options(needs)) if word != ONE_AT_A_TIME]

    def state(self, number: str) -> str | None:
        """Return a job's state as `STATE (REASON)`; None once it has ended."""
        row = re.search(rf"^ *{number} +\S+ +\S+ +\S+ +(\S+)", ask("qstat"), re.MULTILINE)
        return f"{row[1]} ({_reason(number)})" if row else None

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the waiting and running jobs of these blocks."""
        jobs = read_jobs(ask("qstat", "-r"), home, blocks)
        waiting = [job.number for job in jobs if "qw" in job.state or "E" in job.state]
        reasons = {number: _reason(number) for number in waiting[:_MAX_REASONS]}
        return [replace(job, reason=reasons.get(job.number, job.reason)) for job in jobs]

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return these blocks' jobs; none belong to an earlier driver, whose jobs end before Snakemake starts."""
        return self.jobs(home, blocks) if "with external jobid" in log else None

    def waits(self, job: Job) -> bool:
        """Return whether a job is waiting for its turn or for another job."""
        return "qw" in job.state and "E" not in job.state

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Clear a job's error state if no node could start it, or delete the job after several attempts.

        Otherwise, Grid Engine would leave it in the queue forever.
        """
        if "E" not in job.state:
            return None
        problem = f"job {job.number} could not be started ({job.reason})"
        if tried < _MAX_RELEASES:
            return Remedy(("qmod", "-cj", job.number), f"{problem}; cleared, so that Grid Engine tries again")
        return Remedy(("qdel", job.number), f"{problem} for the {tried + 1}th time; cancelled")

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that cancels these jobs."""
        return ("qdel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return no keys, because qsub does not report which option a message is about."""
        del words
        return ()

    def queue_limit(self, refusal: str) -> str | None:
        """Return qsub's message about `max_u_jobs` or `max_jobs`; None for any other rejection."""
        match = _QUEUE_FULL.search(refusal)
        return match[1] if match else None

    def is_unreachable(self, refusal: str) -> bool:
        """Return whether qmaster did not answer."""
        return _NO_ANSWER.search(refusal) is not None

    def in_queue(self) -> int:
        """Return the number of the user's waiting and running jobs."""
        listing = ask("qstat", "-r")
        return len(_QSTAT_ROW.findall(listing))

    def never_starts(self, reason: str) -> bool:
        """Return False, because qsub rejects jobs that can never run."""
        del reason
        return False

    def advice(self, reason: str) -> str | None:
        """Return None: the scheduler's own message is sufficient."""
        del reason
        return None

    def job_end(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, from a paragraph of Snakemake's log; None if the paragraph is not about a job."""
        if refused := _SUBMISSION_FAILED.search(paragraph):
            noise = r"^Unable to run job: (?:error: )?|^Exiting\.\n"
            return JobEnd(refusal=re.sub(noise, "", refused[1], flags=re.MULTILINE))
        number = re.search(r"^    external_jobid: (\d+)", paragraph, re.MULTILINE)
        return JobEnd(number=number[1], state="failed", log=log_path(number[1], home)) if number else None

    def own_messages(self, lines: Sequence[str]) -> list[str]:
        """Parse how a job ended from the lines that we append to its log."""
        return [line.removeprefix(_LOG_PREFIX) for line in lines if line.startswith(_LOG_PREFIX)]


@dataclass(frozen=True)
class GridEngineJob:
    """The job that this process runs in, with the interface `schedulers.select.ThisJob`."""

    number: str
    restarts: int
    stdout: str | None
    scheduler: str = "Grid Engine"

    @classmethod
    def found(cls) -> GridEngineJob | None:
        """Return the job that this process runs in; None outside a job."""
        number = os.environ.get("JOB_ID")
        if number is None or "SGE_TASK_ID" not in os.environ:  # JOB_ID alone is too common a name
            return None
        restarts = os.environ.get("RESTARTED", "0")
        return cls(number, int(restarts) if restarts.isdigit() else 0, os.environ.get("SGE_STDOUT_PATH"))

    def log(self) -> str | None:
        """Return the path of the job's log."""
        return self.stdout

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return None: ranks cannot be started on other nodes of such a job."""
        del nodes, cpus, python
        return None
