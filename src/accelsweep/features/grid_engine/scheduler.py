"""Grid Engine behind the interface of all engines."""

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
from accelsweep.features.grid_engine.site import GridEngine
from accelsweep.json_documents import sha256_text
from accelsweep.records.plan import BLOCK_NAME
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import Job, JobEnd, JobOffer, Remedy, Resources, Value, answered, ask, prepared
from accelsweep.significant_digits import count_of

# A block's resources as options of qsub, and the name that its job has.

IN_TURN = "--in-turn"
"""Our own option: of a sweep's jobs one runs. On a shared node they would wait for each other."""

LOGS = "grid-engine-logs"
"""The folder of the jobs' logs, below the working directory."""


def job_name(sweep: str, home: Path, block: str) -> str:
    """Return the name of a block's job. It tells sweep, folder and block apart, because qstat lists nothing else."""
    shown = re.sub(r"[^A-Za-z0-9_-]", "-", sweep)[:50]
    return f"accelsweep-{shown}-{_digest(home)}-{block}"


def block_in(name: str, home: Path) -> str | None:
    """Return the block whose job has this name, if the job was submitted from `home`; None for any other."""
    found = re.fullmatch(f"accelsweep-.+-{_digest(home)}-({BLOCK_NAME})", name)
    return found[1] if found else None


def _digest(home: Path) -> str:
    return sha256_text(str(home.resolve()))[:6]


def slots(needs: Resources, settings: GridEngine, site: Site) -> int:
    """Return the slots of a job: those of a whole node where it is alone there, a slot being a CPU core."""
    return max(needs.cpus, site.count("cpu")) if settings.exclusive else needs.cpus


def qsub_options(needs: Resources, settings: GridEngine, site: Site) -> str:
    """Return the options of qsub that ask for a block's job, quoted for a shell; `extra` is there as it stands.

    Grid Engine counts memory per slot, and ends a job that runs longer than `h_rt` seconds.
    """
    number = slots(needs, settings, site)
    queue = _queue(needs, settings)
    asked = {
        "h_rt": needs.minutes * 60 if needs.minutes else None,
        settings.memory_resource: f"{math.ceil(needs.mem_mb / number)}M" if needs.mem_mb else None,
        settings.gpu_resource: needs.gpus or None,
        settings.gpu_model_resource: needs.gpu_model if needs.gpus else None,
    }
    words = [] if settings.exclusive else [IN_TURN]
    words += ["-pe", settings.parallel_environment, str(number)] if number > 1 else []
    words += [part for name, value in asked.items() if value is not None for part in ("-l", f"{name}={value}")]
    words += ["-q", queue] if queue else []
    words += ["-P", settings.project] if settings.project else []
    return " ".join([shlex.join(words), settings.extra or ""]).strip()


def in_words(needs: Resources, settings: GridEngine, site: Site) -> str:
    """Return one job's size for a reader: `8 slots, 4 GPUs (h100), 64000 MB, at most 24 minutes, queue gpu.q`."""
    parts = [count_of(slots(needs, settings, site), "slot")]
    if needs.gpus:
        parts.append(count_of(needs.gpus, "GPU") + (f" ({needs.gpu_model})" if needs.gpu_model else ""))
    parts += [f"{needs.mem_mb} MB"] if needs.mem_mb else []
    parts += [f"at most {count_of(needs.minutes, 'minute')}"] if needs.minutes else []
    queue = _queue(needs, settings)
    return ", ".join([*parts, f"queue {queue}" if queue else "any queue"])


def _queue(needs: Resources, settings: GridEngine) -> str | None:
    return settings.queue if needs.gpus else settings.cpu_queue or settings.queue


def before_block(settings: GridEngine) -> str:
    """Return the shell commands that prepare a node for a block, each followed by ` && `."""
    return "".join(f"{command} && " for command in prepared(settings, "JOB_ID"))


# Grid Engine's refusals and ends of jobs: qacct's account of them, and our line about it in a job's log.

_REFUSED = re.compile(
    r"message: Error submitting jobscript \(exit code \d+\):\n(.*?)For further error details", re.DOTALL
)

_CHATTER = re.compile(r"^Unable to run job: (?:error: )?|^Exiting\.\n", re.MULTILINE)

_FULL = re.compile(r"job rejected: ((?:only \d+ jobs are allowed|currently \d+ jobs?)[^\n]*)")

_AWAY = re.compile(r"unable to (?:contact|send message to) qmaster|got send error|can't connect to service", re.I)

_NUMBER = re.compile(r"^    external_jobid: (\d+)", re.MULTILINE)

_MARK = "Grid Engine: "

_MEMORY = "more memory than its limit"

_BY_A_SIGNAL = 128

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def ended(paragraph: str, home: Path) -> JobEnd | None:
    """Return how a job ended, by a paragraph of Snakemake's log; None where it is about no job."""
    if refused := _REFUSED.search(paragraph):
        return JobEnd(refusal=_CHATTER.sub("", refused[1]))
    number = _NUMBER.search(paragraph)
    return JobEnd(number=number[1], state="failed", log=log_of(number[1], home)) if number else None


def full(refusal: str) -> str | None:
    """Return qsub's words on a job too many in the queue, of its user or of all; None for another refusal."""
    found = _FULL.search(refusal)
    return found[1] if found else None


def away(refusal: str) -> bool:
    """Return whether qsub could not reach the queue's master."""
    return _AWAY.search(refusal) is not None


def log_of(number: str, home: Path) -> Path:
    """Return the path of a job's log."""
    return home / LOGS / f"{number}.log"


def own_words(lines: Sequence[str]) -> list[str]:
    """Return what Grid Engine says of a job's end in these lines of its log."""
    return [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]


def tells_of_memory(line: str) -> bool:
    """Return whether this line tells that a job was ended for lack of memory."""
    return line.startswith(_MARK) and _MEMORY in line


def read_account(told: str) -> dict[str, str]:
    """Return the fields of the last job in qacct's answer. Numbers of jobs begin anew after ten million."""
    last = told.rpartition("=====")[2]
    pairs = (line.split(None, 1) for line in last.splitlines() if line.strip("= "))
    return {pair[0]: " ".join(pair[1].split()) if len(pair) > 1 else "" for pair in pairs}


def succeeded(account: Mapping[str, str]) -> bool:
    """Return whether a job ended well."""
    return account.get("failed", "").split()[:1] == ["0"] and account.get("exit_status", "").split()[:1] == ["0"]


def last_word(account: Mapping[str, str]) -> str | None:
    """Return our line about a job that Grid Engine ended: the cause where its limits tell it, else qacct's words.

    None for a job that ended by itself, whose own log tells more.
    """
    if account.get("failed", "").split()[:1] == ["0"] and _number(account.get("exit_status")) < _BY_A_SIGNAL:
        return None
    asked = dict(re.findall(r"(\w+)=([0-9.]+[KMGT]?)", account.get("category", "")))
    spent = f"failed {account.get('failed')}, exit_status {account.get('exit_status')}"
    if _number(account.get("ru_wallclock")) >= _number(asked.get("h_rt"), default=float("inf")):
        return f"{_MARK}it came to its time limit, {asked['h_rt']} s ({spent})"
    slots = _number(account.get("slots"), default=1)
    for name in ("h_vmem", "h_rss", "s_vmem"):
        if name in asked and _number(account.get("maxvmem")) >= slots * _number(asked[name]):
            return f"{_MARK}it took {_MEMORY}, {asked[name]} per slot ({spent}, maxvmem {account.get('maxvmem')})"
    return f"{_MARK}{spent}"


def _number(text: str | None, default: float = 0.0) -> float:
    """Return the number in `12`, `12.5s`, `250M` or `2.100GB`, in seconds or bytes."""
    found = re.match(r"([0-9.]+) *([KMGT]?)", text or "")
    return float(found[1]) * _UNITS[found[2]] if found else default


# The jobs of a sweep in Grid Engine's queue, found by their names.

_ROW = re.compile(
    r"^ *(?P<number>\d+) +\S+ +\S+ +\S+ +(?P<state>[a-zA-Z]+) +(?P<since>\S+ \S+) +(?:(?P<queue>\S+@\S+) +)?\d+.*\n"
    r" +Full jobname: +(?P<name>\S+)",
    re.MULTILINE,
)

_ERROR = re.compile(r"^error reason +\d+: +(.*)", re.MULTILINE)

_SCHEDULING = re.compile(r"^scheduling info: +(.*)", re.MULTILINE)

_TIME = "%m/%d/%Y %H:%M:%S"

_MOST_RELEASES = 3

_MOST_REASONS = 20


def listed(home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the user's jobs that wait or run for one of these `blocks`, submitted from the folder `home`."""
    rows = read_jobs(ask("qstat", "-r"), home, blocks)
    waiting = [job.number for job in rows if waits(job) or in_error(job)][:_MOST_REASONS]
    reasons = {number: reason(number) for number in waiting}
    return [replace(job, reason=reasons.get(job.number, job.reason)) for job in rows]


def in_queue() -> int:
    """Return the number of the user's jobs that wait or run."""
    listing = ask("qstat", "-r")
    return len(_ROW.findall(listing))


def read_jobs(listing: str, home: Path, blocks: Collection[str]) -> list[Job]:
    """Return the jobs in qstat's `listing` that were submitted from `home` for one of these `blocks`."""
    found = []
    for row in _ROW.finditer(listing):
        block = block_in(row["name"], home)
        if block in blocks and block is not None:
            elapsed = _since(row["since"]) if row["queue"] else ""
            found.append(Job(row["number"], block, row["state"], "None", row["queue"] or "", elapsed))
    return found


def _since(moment: str) -> str:
    try:
        began = datetime.strptime(moment, _TIME)  # noqa: DTZ007 - qstat states the cluster's local time
    except ValueError:
        return "some time"
    return str(datetime.now() - began).partition(".")[0]  # noqa: DTZ005 - the same


def reason(number: str) -> str:
    """Return why a job waits, as far as the scheduler tells: many sites do not let it (`schedd_job_info`)."""
    try:
        told = ask("qstat", "-j", number)
    except AccelsweepError:  # it has ended meanwhile
        return "None"
    found = _ERROR.search(told) or _SCHEDULING.search(told)
    return found[1].strip() if found else "no reason is told"


def waits(job: Job) -> bool:
    """Return whether a job waits in the queue, for its turn or for another job."""
    return "qw" in job.state and not in_error(job)


def in_error(job: Job) -> bool:
    """Return whether a job could not be started, and stands until somebody clears that."""
    return "E" in job.state


def remedy(job: Job, tried: int) -> Remedy | None:
    """Return what a job needs to run again: one that no node could start stands in the queue for ever."""
    if not in_error(job):
        return None
    said = f"job {job.number} could not be started ({job.reason})"
    if tried < _MOST_RELEASES:
        return Remedy(("qmod", "-cj", job.number), f"{said}; cleared, so that Grid Engine tries again")
    return Remedy(("qdel", job.number), f"{said} for the {tried + 1}th time; cancelled")


# One job offered to Grid Engine, or submitted and followed, beside all sweeps.

_COMMAND = ("-b", "y", "-shell", "n")

_PREFIX = re.compile(r"^(Unable to run job: |verification: |Exiting\.?$)", re.MULTILINE)


def offer(options: str) -> JobOffer:
    """Return whether a node of the empty cluster could take a job with these `options` of qsub, in its own words."""
    asked = ["qsub", "-w", "v", *_of_qsub(options), *_COMMAND, "true"]
    taken, words = answered(*asked)
    said = " ".join(_PREFIX.sub("", words).split())
    return JobOffer(taken, said, shlex.join(asked), passing=not taken and (full(said) is not None or away(said)))


def submit(options: str, command: str, log: Path) -> str:
    """Submit a job with these `options`; return its number."""
    always = ("-terse", "-cwd", "-V", "-j", "y", "-w", "e", "-r", "n", "-N", "accelsweep-doctor", "-o", str(log))
    asked = (*always, *_of_qsub(options), *_COMMAND, "/bin/bash", "-c", command)
    return ask("qsub", *asked, base=for_jobs(os.environ)).strip()


def state(number: str) -> str | None:
    """Return `STATE (REASON)` of a job that has not ended; None once it has."""
    row = re.search(rf"^ *{number} +\S+ +\S+ +\S+ +(\S+)", ask("qstat"), re.MULTILINE)
    return f"{row[1]} ({reason(number)})" if row else None


def _of_qsub(options: str) -> list[str]:
    return [word for word in shlex.split(options) if word != IN_TURN]


@dataclass(frozen=True)
class GridEngineEngine:
    """Grid Engine at a `site`."""

    site: Site
    name: str = "Grid Engine"
    executor: str = "cluster-generic"
    profile: str = "grid_engine"
    programs: tuple[str, ...] = ("qsub", "qstat", "qdel", "qmod")
    starts_ranks: bool = False

    def _of(self, needs: Resources) -> tuple[GridEngine, Site]:
        site = self.site.of_kind(needs.node_kind)
        words = site.words_for("grid_engine")
        assert isinstance(words, GridEngine), "these are the words of this scheduler"
        return words, site

    def resources(self, needs: Resources) -> dict[str, Value]:
        """Return the options of qsub, which the profile hands on."""
        return {"grid_engine": qsub_options(needs, *self._of(needs))}

    def in_words(self, needs: Resources) -> str:
        """Return one job's size for a reader."""
        return in_words(needs, *self._of(needs))

    def command(self, needs: Resources) -> str:
        """Return qsub with its options."""
        return f"qsub {qsub_options(needs, *self._of(needs))}"

    def before_block(self, needs: Resources) -> str:
        """Return the shell commands that prepare a node."""
        return before_block(self._of(needs)[0])

    def options(self, sweep: str) -> list[str]:
        """Return nothing: the profile says it all."""
        del sweep
        return []

    def version(self) -> str:
        """Return what qstat says of itself."""
        return f"{self.name} ({ask('qstat', '-help').partition(chr(10))[0].strip()})"

    def offer(self, needs: Resources) -> JobOffer:
        """Return what `qsub -w v` says."""
        return offer(qsub_options(needs, *self._of(needs)))

    def default_memory_mb(self, needs: Resources) -> int | None:
        """Return None: a queue's default is not known."""
        del needs
        return None

    def submit(self, needs: Resources, command: str, log: Path) -> str:
        """Submit a job; return its number."""
        return submit(qsub_options(needs, *self._of(needs)), command, log)

    def state(self, number: str) -> str | None:
        """Return `STATE (REASON)` of a job that has not ended."""
        return state(number)

    def jobs(self, home: Path, blocks: Collection[str]) -> list[Job]:
        """Return the jobs of these blocks that wait or run."""
        return listed(home, blocks)

    def own_jobs(self, log: str, home: Path, blocks: Collection[str]) -> list[Job] | None:
        """Return the jobs of these blocks: an earlier head's have ended before Snakemake begins."""
        return listed(home, blocks) if "with external jobid" in log else None

    def waits(self, job: Job) -> bool:
        """Return whether a job waits in the queue."""
        return waits(job)

    def remedy(self, job: Job, tried: int) -> Remedy | None:
        """Return what a job needs to run again."""
        return remedy(job, tried)

    def cancel(self, numbers: Sequence[str]) -> tuple[str, ...]:
        """Return the command that ends these jobs."""
        return ("qdel", *numbers)

    def keys_for(self, words: str) -> tuple[str, ...]:
        """Return none: qsub says what it looked for, not which option asked for it."""
        del words
        return ()

    def full(self, refusal: str) -> str | None:
        """Return qsub's words on `max_u_jobs` or `max_jobs`."""
        return full(refusal)

    def away(self, refusal: str) -> bool:
        """Return whether qmaster did not answer."""
        return away(refusal)

    def in_queue(self) -> int:
        """Return the number of the user's jobs that wait or run."""
        return in_queue()

    def hopeless(self, reason: str) -> bool:
        """Return False: qsub refuses what could never run."""
        del reason
        return False

    def advice(self, reason: str) -> str | None:
        """Return None: the scheduler's own sentence tells it."""
        del reason
        return None

    def ended(self, paragraph: str, home: Path) -> JobEnd | None:
        """Return how a job ended, by a paragraph of Snakemake's log."""
        return ended(paragraph, home)

    def own_words(self, lines: Sequence[str]) -> list[str]:
        """Return what Grid Engine says of a job's end in its log."""
        return own_words(lines)


# The Grid Engine job that this process is in, by its environment.

GRID_ENGINE_VARIABLES = ("JOB_ID", "NSLOTS")
"""The variables of a job's environment that a record keeps."""


@dataclass(frozen=True)
class GridEngineJob:
    """A Grid Engine job, seen from inside."""

    number: str
    restarts: int
    stdout: str | None
    engine: str = "Grid Engine"

    @classmethod
    def found(cls) -> GridEngineJob | None:
        """Return the job that this process is in, or None."""
        number = os.environ.get("JOB_ID")
        if number is None or "SGE_TASK_ID" not in os.environ:
            return None
        restarts = os.environ.get("RESTARTED", "0")
        return cls(number, int(restarts) if restarts.isdigit() else 0, os.environ.get("SGE_STDOUT_PATH"))

    def log(self) -> str | None:
        """Return the path of the job's log."""
        return self.stdout

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return None: nothing here starts ranks on other nodes of such a job."""
        del nodes, cpus, python
        return None
