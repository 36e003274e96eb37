"""The grammar of faults on a Slurm cluster: as in `grammar`, one number says who is struck, by what and when."""

from __future__ import annotations

import random

from grammar import BEFORE, Case, Fault

WAITING = "while its jobs wait"

_LOGIN = ("driver", "driver", "snakemake", "publisher")
_NODE = ("executor", "rank", "job's Snakemake")

SLURM_MOMENTS: dict[str, tuple[str, ...]] = {
    WAITING: _LOGIN,
    "while a job starts": _LOGIN,
    "while a run is measured": (*_LOGIN, *_NODE),
    "after its first record": (*_LOGIN, "executor", "job's Snakemake"),
    "in its second run": (*_LOGIN, *_NODE),
    "after its block": _LOGIN,
    "while it reports": ("driver", "publisher"),
    "somewhere on its way": ("driver", "snakemake"),
}
"""Each moment of a sweep through Slurm, and the processes that live then, drivers more often than others."""

SLURM_SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")

JOB_STRIKES: dict[str, tuple[str, ...]] = {
    "scancel": ("scancel {job}",),
    "scancel --signal=TERM": ("scancel --signal=TERM --full {job}",),
    "scancel --signal=KILL": ("scancel --signal=KILL --full {job}",),
    "requeued": ("scontrol requeue {job}",),
    "requeued, held and released": ("scontrol requeuehold {job}", "scontrol release {job}"),
    "held and released": ("scontrol hold {job}", "scontrol release {job}"),
    "suspended and resumed": ("scontrol suspend {job}", "scontrol resume {job}"),
}
"""What a user or the staff do to a job, with some seconds between two commands."""

_OF_WAITING_JOBS = ("scancel", "held and released")
_OF_RUNNING_JOBS = tuple(what for what in JOB_STRIKES if what != "held and released")
_OF_A_JOB = [moment for moment, players in SLURM_MOMENTS.items() if "snakemake" in players]

DAEMONS = {"controller away": "slurmctld", "killed and started again": "slurmd"}

SLURM_DAMAGES = ("deleted", "cut short", "emptied", "a byte flipped", "made a folder")
SLURM_FILES = ("record", "steps", "done file", "hold", "block", "manifest", "log", "job's log")


def slurm_case_of(seed: int) -> Case:
    """Return the case of this number: a fresh sweep, with one fault or two."""
    dice = random.Random(seed)
    faults = [_fault(dice, 1)]
    if dice.random() < 0.5:
        command = dice.choice((1, 1, 2))
        while (second := _fault(dice, command)).when == faults[0].when != BEFORE:
            pass
        faults.append(second)
    return Case(seed, True, tuple(faults))


def _fault(dice: random.Random, command: int) -> Fault:
    make = dice.choices((_signal, _job, _daemon, _damage), (45, 25, 10, 20))[0]
    what, whom, when = make(dice)
    command += when == BEFORE and command == 1  # before the first command there is nothing
    return Fault(what, whom, when, command, dice.random(), dice.randrange(2**32))


def _signal(dice: random.Random) -> tuple[str, str, str]:
    when = dice.choice(list(SLURM_MOMENTS))
    return dice.choice(SLURM_SIGNALS), dice.choice(SLURM_MOMENTS[when]), when


def _job(dice: random.Random) -> tuple[str, str, str]:
    when = dice.choice(_OF_A_JOB)
    return dice.choice(_OF_WAITING_JOBS if when == WAITING else _OF_RUNNING_JOBS), "its job", when


def _daemon(dice: random.Random) -> tuple[str, str, str]:
    what = dice.choice(list(DAEMONS))
    return what, DAEMONS[what], dice.choice(list(SLURM_MOMENTS))


def _damage(dice: random.Random) -> tuple[str, str, str]:
    when = BEFORE if dice.random() < 0.5 else dice.choice(list(SLURM_MOMENTS)[1:])
    return dice.choice(SLURM_DAMAGES), dice.choice(SLURM_FILES), when
