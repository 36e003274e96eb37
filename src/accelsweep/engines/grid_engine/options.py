"""A block's resources as options of qsub, and the name that its job has."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

from accelsweep.config.site import GridEngine, Site
from accelsweep.json_documents import sha256_text
from accelsweep.records.plan import BLOCK_NAME
from accelsweep.schedulers.protocol import Resources, prepared
from accelsweep.significant_digits import count_of

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
