"""The arguments of a command that measures: overrides, options, and what a feature's command adds."""

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
    from accelsweep.records.layout import SweepFolder
    from accelsweep.records.plan import TrialFindings


FIRST_COMMANDS: Mapping[str, str] = {
    "accelsweep run batch_size=64,256": "in your project: its own training script",
    "accelsweep run experiment=quickstart": "the shipped quickstart",
    "accelsweep init mine": "a commented template to start from",
}
"""The commands to begin with -> their purposes."""


def command_list(commands: Mapping[str, str]) -> str:
    """Return one indented line for each command, with its purpose."""
    width = max(map(len, commands))
    return "\n".join(f"  {command:<{width}}  {purpose}" for command, purpose in commands.items())


class Extension(Frozen):
    """What a feature's command adds to a request (`registry.Feature.request`).

    `command` is the command's name, a field with a single allowed value. It identifies the extension when the stored
    request of a background driver is read.
    """

    command: str

    @property
    def arguments(self) -> list[str]:
        """The command-line arguments and options of the feature's command."""
        return []

    @property
    def nodes(self) -> tuple[str, ...]:
        """The cluster nodes that the command measures, once they are known."""
        return ()

    @property
    def folder(self) -> str | None:
        """The folder under `sweeps/` if the command plans several sweeps itself; None if it plans a single one."""
        return None

    def resolved(self, home: Path, request: Request) -> Request:
        """Return the request after making all decisions that a later driver must not revisit. Raises InputError."""
        del home
        return request

    def pinned(self, plan: Plan) -> Extension:
        """Return this extension with its choices fixed to those made in the first plan."""
        del plan
        return self

    def plan(self, home: Path, request: Request, make: Callable[..., Plan], trial: TrialFindings | None) -> Plan:
        """Return the plan; `make` is `planning.plan.make_plan` with the request's options."""
        del home, request, trial
        return make()

    def discard(self, folder: SweepFolder) -> None:
        """Remove what `plan` created, because the sweep does not start."""

    def run(self, home: Path, request: Request) -> int:
        """Run the command as if typed in a terminal; return its exit code."""
        raise NotImplementedError


def _read_extension(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for model in registry.loaded("request"):
        if model.model_fields["command"].default == value.get("command"):
            return model.model_validate(value)
    raise ValueError(f"no feature provides the command {value.get('command')!r}")


@dataclass(frozen=True)
class Request:
    """The arguments of a command that measures.

    `features` contains the values of options added by features (`registry.RunOption`), keyed by name.
    """

    overrides: tuple[str, ...] = ()
    entry: str | None = None
    minutes: float | None = None
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
    def nodes(self) -> tuple[str, ...]:
        """The cluster nodes that the command measures, once they are known."""
        return self.extension.nodes if self.extension else ()

    def resume_command(self) -> str:
        """Return the command that resumes this sweep. Secrets in URLs are masked.

        It omits `--add-repeats`, because the plan already contains the added repeats.
        """
        options = {
            "--entry": self.entry,
            "--minutes": None if self.minutes is None else f"{self.minutes:g}",
            "--name": self.name,
            "--jobs": self.jobs,
            "--tracking-uri": None if self.tracking_uri is None else masked(self.tracking_uri),
            "--profile": None if self.profile == "local" else self.profile,
        }
        words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        words += ["--until-decided"] if self.until_decided else []
        words += ["--keep-going"] if self.keep_going else []
        for option in registry.run_options():
            if option.repeated is not None and (value := self.features.get(option.name)):
                words += registry.load(option.repeated)(value)
        command = [self.extension.command, *self.extension.arguments] if self.extension else ["run"]
        return shlex.join(["accelsweep", *command, *self.overrides, *words])

    @property
    def budget_seconds(self) -> float | None:
        """The time budget in seconds, parsed from a value such as `90s`, `30m`, `2h` or a plain number; None if unset.

        Raises InputError.
        """
        if self.time_budget is None:
            return None
        seconds = parse_duration(self.time_budget, {"": 1, "s": 1, "m": 60, "h": 3600})
        if seconds is None:
            raise InputError(f"--time-budget {self.time_budget!r} is not a duration: write it as 90s, 30m or 2h")
        return seconds
