"""The user's request to a command that measures, and how that ended."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from accelsweep.base.durations import duration_in
from accelsweep.base.errors import InputError
from accelsweep.base.secrets import masked
from accelsweep.core.cells.versions import Version
from accelsweep.core.planned.settings import Fleet
from accelsweep.drive.following.delivery import Target


@dataclass(frozen=True)
class Request:
    """The user's arguments of `run`, or of `ab`, which `compares` `versions` or the environments of `pythons`.

    `pinned` is what the names of versions stand for, where that is decided already. `fail_if` is the gate of `ab`.
    Those of `fleet` have a `fleet`, and those of `claims` the names of `claims`, none for all.
    """

    overrides: tuple[str, ...]
    versions: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    pinned: tuple[Version, ...] = ()
    compares: bool = False
    fail_if: str | None = None
    fleet: Fleet | None = None
    claims: tuple[str, ...] | None = None
    until_decided: bool = False
    name: str | None = None
    profile: str = "local"
    jobs: int | None = None
    add_repeats: int = 0
    time_budget: str | None = None
    tracking_uri: str | None = None
    cancel_old: bool = False
    keep_going: bool = False
    notify: tuple[str, ...] = ()

    @property
    def command(self) -> Literal["run", "ab", "fleet", "claims"]:
        """The command whose arguments these are."""
        if self.claims is not None:
            return "claims"
        return "ab" if self.compares else "fleet" if self.fleet else "run"

    @property
    def fleet_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that are compared, as soon as they are chosen."""
        return self.fleet.nodes if self.fleet else ()

    def again(self) -> str:
        """Return the command that continues this sweep; added repeats are in the plan already.

        The addresses of notices and of the store are cut where they hold secrets.
        """
        store = None if self.tracking_uri is None else masked(self.tracking_uri)
        options = {"--name": self.name, "--jobs": self.jobs, "--tracking-uri": store}
        options |= {"--profile": self.profile if self.profile != "local" else None, "--fail-if": self.fail_if}
        given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
        given += ["--until-decided"] if self.until_decided else []
        given += ["--keep-going"] if self.keep_going else []
        given += [part for address in self.notify for part in ("--notify", Target(address).shown)]
        given += self.fleet.words if self.fleet else []
        versions = [*self.versions, *(part for path in self.pythons for part in ("--python", path))]
        return shlex.join(["accelsweep", self.command, *versions, *self.overrides, *given])


@dataclass(frozen=True)
class Ended:
    """The end of `run`: the sweep's name, and 0 if every planned run is settled, 1 if not, 130 if interrupted."""

    sweep: str
    code: int


def seconds_of(budget: str | None) -> float | None:
    """Return the seconds in `90s`, `30m`, `2h` or a bare number of seconds; None for None."""
    if budget is None:
        return None
    found = duration_in(budget, {"": 1, "s": 1, "m": 60, "h": 3600})
    if found is None:
        raise InputError(f"--time-budget {budget!r} is not a time: write 90s, 30m or 2h")
    return found
