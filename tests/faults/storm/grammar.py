"""The grammar of faults: one number says who is struck, by what, when and how often, and the sentence that tells it.

Nothing here looks at a sweep, so the same number is always the same case.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGINT twice", "SIGHUP", "SIGSTOP")

MOMENTS: dict[str, tuple[str, ...]] = {
    "while it plans": ("driver",),
    "while Snakemake starts": ("driver", "snakemake", "publisher", "fork server"),
    "while a run is measured": (
        *("driver", "snakemake", "job", "executor", "rank", "second rank", "publisher", "fork server"),
    ),
    "after its first record": ("driver", "snakemake", "job", "executor", "publisher", "fork server"),
    "after its second record": ("driver", "snakemake", "job", "executor", "publisher", "fork server"),
    "after its block": ("driver", "snakemake", "publisher"),
    "while it reports": ("driver", "snakemake", "reporting step", "publisher"),
    "while it publishes": ("driver", "publisher"),
    "somewhere on its way": ("driver", "snakemake"),
}
"""Each moment of a command, and the processes that live then."""

BEFORE = "before it"

DAMAGES = (
    *("cut short", "a byte flipped", "emptied", "made a folder", "made a FIFO", "made a link to /dev/zero", "deleted"),
    *("stamped in the future", "stamped in the past", "old content restored", "made unreadable"),
)

FILES = (
    *("record", "steps", "run log", "attempt", "done file", "block", "manifest", "revision", "findings", "table"),
    *("completed", "published", "prepared", "halt", "hold", "log", "report", "MLflow's store", "Snakemake's notes"),
)

FOLDERS = ("run", "attempts", "blocks", "logs", "reports", "Snakemake's folder")

COMMANDS = ("status", "report", "runs", "clean", "run", "export", "retry")
MOVES = ("home moved", "sweep renamed")
STAMPS = ("all stamped in the future", "all stamped in the past")


@dataclass(frozen=True)
class Fault:
    """One fault. `share` in [0, 1) tells how far into the moment, `dice` which file and where in it.

    `command` is the number of the command that it strikes, from 1.
    """

    what: str
    whom: str
    when: str
    command: int
    share: float
    dice: int

    def __str__(self) -> str:
        """Return the clause of the case's sentence."""
        return f"{self.what}: {self.whom}, {self.when} (command {self.command})"


@dataclass(frozen=True)
class Case:
    """A seed's faults. `fresh` begins without a sweep; otherwise a measured one gets further repeats."""

    seed: int
    fresh: bool
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        """Return the sentence that says what happens."""
        start = "a fresh sweep" if self.fresh else "more repeats of a sweep"
        return f"seed {self.seed}: {start}; {', then '.join(map(str, self.faults))}"


def case_of(seed: int) -> Case:
    """Return the case of this number."""
    dice = random.Random(seed)
    fresh = dice.random() < 0.1
    faults = [_fault(dice, 1)]
    if dice.random() < 0.5:
        faults.append(_another(dice, faults[0]))
    return Case(seed, fresh, tuple(faults))


def _another(dice: random.Random, first: Fault) -> Fault:
    command = dice.choice((1, 2))
    while not _go_together(first, second := _fault(dice, command)):
        pass
    return second


def _go_together(first: Fault, second: Fault) -> bool:
    whats = {first.what, second.what}
    if "home moved" in whats and any(what.startswith("disk") for what in whats):
        return False  # a mounted folder cannot be moved
    return len(whats) == 2 and (first.when != second.when or first.when == BEFORE)


def _fault(dice: random.Random, command: int) -> Fault:
    kinds = {_signal: 45, _damage: 31, _folder: 4, _beside: 8, _full_disk: 4, _read_only: 2, _moved: 3, _stamped: 3}
    make = dice.choices(list(kinds), list(kinds.values()))[0]
    what, whom, when = make(dice)
    return Fault(what, whom, when, command, dice.random(), dice.randrange(2**32))


def _signal(dice: random.Random) -> tuple[str, str, str]:
    when = dice.choice(list(MOMENTS))
    return dice.choice(SIGNALS), dice.choice(MOMENTS[when]), when


def _damage(dice: random.Random) -> tuple[str, str, str]:
    when = BEFORE if dice.random() < 0.5 else dice.choice(list(MOMENTS)[1:])
    return dice.choice(DAMAGES), dice.choice(FILES), when


def _folder(dice: random.Random) -> tuple[str, str, str]:
    return "folder deleted", dice.choice(FOLDERS), BEFORE if dice.random() < 0.5 else dice.choice(list(MOMENTS)[1:])


def _beside(dice: random.Random) -> tuple[str, str, str]:
    return "at the same time", dice.choice(COMMANDS), dice.choice(list(MOMENTS)[2:])


def _full_disk(dice: random.Random) -> tuple[str, str, str]:
    return "disk full", "home", dice.choice([BEFORE, *MOMENTS])


def _read_only(dice: random.Random) -> tuple[str, str, str]:
    return "disk read-only", "home", BEFORE


def _moved(dice: random.Random) -> tuple[str, str, str]:
    return dice.choice(MOVES), "folder", BEFORE


def _stamped(dice: random.Random) -> tuple[str, str, str]:
    return dice.choice(STAMPS), "folder", BEFORE
