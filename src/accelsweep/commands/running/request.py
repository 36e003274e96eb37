"""What the user asks of `run` or `ab`, and how that ended."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from accelsweep.base.errors import InputError
from accelsweep.base.secrets import masked
from accelsweep.drive.delivery import Target


@dataclass(frozen=True)
class Request:
    """The user's arguments of `run`, or of `ab`, which `compares` `versions` or the environments of `pythons`."""

    overrides: tuple[str, ...]
    versions: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    compares: bool = False
    until_decided: bool = False
    name: str | None = None
    profile: str = "local"
    jobs: int | None = None
    add_repeats: int = 0
    time_budget: str | None = None
    tracking_uri: str | None = None
    cancel_old: bool = False
    notify: tuple[str, ...] = ()

    def again(self) -> str:
        """Return the command that continues this sweep; added repeats are in the plan already.

        The addresses of notices and stores are cut, because they hold secrets.
        """
        options = {"--name": self.name, "--jobs": self.jobs, "--tracking-uri": self.tracking_uri}
        options |= {"--profile": self.profile if self.profile != "local" else None}
        stated = {option: masked(str(value)) for option, value in options.items() if value is not None}
        given = [part for option, value in stated.items() for part in (option, value)]
        given += ["--until-decided"] if self.until_decided else []
        given += [part for address in self.notify for part in ("--notify", Target(address).shown)]
        environments = [part for path in self.pythons for part in ("--python", path)]
        command = ["ab", *self.versions, *environments] if self.compares else ["run"]
        return shlex.join(["accelsweep", *command, *self.overrides, *given])


@dataclass(frozen=True)
class Ended:
    """How `run` ended: the sweep's name, and 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


def seconds_of(budget: str | None) -> float | None:
    """Return the seconds in `90s`, `30m`, `2h` or a bare number of seconds; None for None."""
    if budget is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", budget.strip())
    if match is None:
        raise InputError(f"--time-budget {budget!r} is not a time: write 90s, 30m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
