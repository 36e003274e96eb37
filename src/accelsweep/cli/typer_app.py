"""The reading and ending of a command line, where that differs from Typer's way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from accelsweep import registry
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, InputError
from accelsweep.installation import __version__
from accelsweep.signals import user_message
from accelsweep.significant_digits import escaped

# Hydra's own options, which its users try: what to write instead of each.

_NO_MULTIRUN = "a sweep needs no such option: several values of a key make it, batch_size=32,64"

_ONE_CONFIG = "the config is accelsweep's: keys and groups of your own lie in conf/, experiments in conf/experiment/"

_SHOW = "write --cfg job; interpolations are shown as they are written"

OPTIONS: Mapping[str, str] = {
    "-m": _NO_MULTIRUN,
    "--multirun": _NO_MULTIRUN,
    "-r": "`accelsweep run` is the command itself",
    "--run": "`accelsweep run` is the command itself",
    "-c": "write --cfg job",
    "--resolve": _SHOW,
    "-p": _SHOW,
    "--package": _SHOW,
    "-i": _SHOW,
    "--info": _SHOW,
    "-cp": _ONE_CONFIG,
    "--config-path": _ONE_CONFIG,
    "-cn": _ONE_CONFIG,
    "--config-name": _ONE_CONFIG,
    "-cd": _ONE_CONFIG,
    "--config-dir": _ONE_CONFIG,
}
"""Hydra's options -> what to do here."""


def refuse_options(arguments: Sequence[str]) -> None:
    """Raise InputError for an option of Hydra's among a command's arguments, with what to write instead."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in OPTIONS:
            raise InputError(f"{name} is an option of Hydra's: {OPTIONS[name]}")
        if name == "--":
            return


INTERRUPTED = "accelsweep: interrupted"

_NO_LIMIT = 1000


class HydraCommand(TyperCommand):
    """A command that takes Hydra's overrides; its users try Hydra's options, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say what each of Hydra's options is here. Raises InputError."""
        if not ctx.resilient_parsing:  # else a shell asks for completions, and an error would break its user's line
            refuse_options(args)
        return super().parse_args(ctx, args)


@contextlib.contextmanager
def _saying_of_interrupts() -> Iterator[None]:
    """Say that a command was interrupted: Typer would end it without a word."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(fail(INTERRUPTED, EXIT_INTERRUPTED)) from None


class Commands(TyperGroup):
    """All commands. The first sentence of each is whole in their list: Typer cuts it to the terminal's width."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line."""
        with _saying_of_interrupts():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Carry a command out."""
        with _saying_of_interrupts():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the core's commands, then those of features."""
        return [*super().list_commands(ctx), *(command.name for command in registry.commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; that of a feature is imported only now, so that `--help` stays quick."""
        if (found := super().get_command(ctx, cmd_name)) is not None:
            return found
        wanted = (command for command in registry.commands() if command.name == cmd_name)
        return next((_typer_command(command) for command in wanted), None)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its sentence, on as many lines as that takes."""
        rows = [(name, self.commands[name].get_short_help_str(_NO_LIMIT)) for name in super().list_commands(ctx)]
        rows += [(command.name, command.help) for command in registry.commands()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _typer_command(command: registry.Command) -> TyperCommand:
    """Return a feature's command as Typer makes it of the function that `command.target` names."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    own = HydraCommand if command.overrides else None
    app.command(command.name, cls=own, help=command.help)(registry.load(command.target))
    return typer.main.get_command(app)  # type: ignore[return-value] # an app of one command is that command


def fail(message: str, code: int) -> int:
    """Say why a command ended; return its exit code `code`."""
    typer.echo(escaped(message), err=True)
    return code


def exit_code(command: Callable[[], int]) -> int:
    """Carry out a command; return its exit code, for our errors after one message and never a traceback."""
    try:
        return command()
    except (AccelsweepError, OSError) as error:
        kind = "wrong input" if isinstance(error, InputError) else "error"
        words, code = user_message(error)
        return fail(f"accelsweep: {kind}: {words}", code)
    except KeyboardInterrupt:
        return fail(INTERRUPTED, EXIT_INTERRUPTED)


# The command line itself, without its commands.

app = typer.Typer(
    name="accelsweep",
    cls=Commands,
    help="Does a GPU, a bigger batch or a lower precision pay off for your model? One command measures and tells.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"accelsweep {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[  # noqa: ARG001 - its callback answers
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    from accelsweep.records.cleanup import remove_ownerless_folders

    remove_ownerless_folders()
