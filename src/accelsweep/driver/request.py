"""What a command that measures was asked for: overrides, options, and what the command of a feature adds."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny

from accelsweep import registry
from accelsweep.errors import InputError
from accelsweep.json_documents import Frozen
from accelsweep.redaction import masked
from accelsweep.significant_digits import parse_duration

if TYPE_CHECKING:
    from accelsweep.planning.plan import Plan


class Extension(Frozen):
    """What the command of a feature adds to a request (`registry.Feature.request`).

    `command` is its name, a field with one value. It is stored with the request where a driver runs in the background.
    """

    command: str

    @property
    def words(self) -> list[str]:
        """The arguments and options of its own, as they are typed."""
        return []

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of a cluster that it measures, as soon as they are known."""
        return ()

    @property
    def folder(self) -> str | None:
        """The folder below `sweeps/` of a command that plans several sweeps by itself, None for one that plans one."""
        return None

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request with all that a later driver must not decide anew. Raises InputError for wrong ones."""
        del home
        return request

    def pinned(self, plan: Plan) -> Extension:
        """Return this extension with what the first plan has decided."""
        del plan
        return self

    def plan(self, home: Path, request: Request, make: Callable[..., Plan]) -> Plan:
        """Return the plan; `make` is `planning.plan.make_plan` with the request's options."""
        del home, request
        return make()

    def run(self, home: Path, request: Request) -> int:
        """Do what the command does in a terminal; return its exit code."""
        raise NotImplementedError


def _read_extension(written: Any) -> Any:
    if not isinstance(written, Mapping):
        return written
    for model in registry.loaded("request"):
        if model.model_fields["command"].default == written.get("command"):
            return model.model_validate(written)
    raise ValueError(f"no feature has the command {written.get('command')!r}")


@dataclass(frozen=True)
class Request:
    """The arguments of a command that measures.

    `features` are the options that features add to such commands (`registry.RunOption`), by their names.
    """

    overrides: tuple[str, ...] = ()
    name: str | None = None
    profile: str = "local"
    jobs: int | None = None
    add_repeats: int = 0
    time_budget: str | None = None
    until_decided: bool = False
    tracking_uri: str | None = None
    cancel_old: bool = False
    keep_going: bool = False
    features: dict[str, Any] = field(default_factory=dict)
    extension: Annotated[SerializeAsAny[Extension] | None, BeforeValidator(_read_extension)] = None

    @property
    def command(self) -> str:
        """The command whose arguments these are."""
        return self.extension.command if self.extension else "run"

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of a cluster that the command measures, as soon as they are known."""
        return self.extension.nodes if self.extension else ()

    def again(self) -> str:
        """Return the command that resumes this sweep; added repeats are in the plan already.

        Addresses are masked where they hold secrets.
        """
        store = None if self.tracking_uri is None else masked(self.tracking_uri)
        profile = self.profile if self.profile != "local" else None
        options = {"--name": self.name, "--jobs": self.jobs, "--tracking-uri": store, "--profile": profile}
        given = [part for option, value in options.items() if value is not None for part in (option, str(value))]
        given += [word for word, asked in _FLAGS if getattr(self, asked)]
        for option in registry.run_options():
            if option.repeated is not None and (value := self.features.get(option.name)):
                given += registry.load(option.repeated)(value)
        own = self.extension.words if self.extension else []
        return shlex.join(["accelsweep", self.command, *own, *self.overrides, *given])

    @property
    def budget_seconds(self) -> float | None:
        """The seconds in `90s`, `30m`, `2h` or a bare number of seconds; None without a budget. Raises InputError."""
        if self.time_budget is None:
            return None
        seconds = parse_duration(self.time_budget, {"": 1, "s": 1, "m": 60, "h": 3600})
        if seconds is None:
            raise InputError(f"--time-budget {self.time_budget!r} is not a time: write 90s, 30m or 2h")
        return seconds


_FLAGS = (("--until-decided", "until_decided"), ("--keep-going", "keep_going"))
