"""The Typer application: handles Hydra's options, features' commands, interrupts and errors."""

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

_NO_MULTIRUN = "not needed for a sweep: give a key several values, as in batch_size=32,64"

_ONE_CONFIG = "the config is accelsweep's: put your own keys and groups in conf/, experiments in conf/experiment/"

_SHOW = "write --cfg job; interpolations are shown unresolved"

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
"""Hydra option that Hydra users are likely to try -> what to do instead."""


def refuse_options(arguments: Sequence[str]) -> None:
    """Raise InputError for any of Hydra's own options, stating what to write instead."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in OPTIONS:
            raise InputError(f"{name} is one of Hydra's options: {OPTIONS[name]}")
        if name == "--":
            return


INTERRUPTED = "accelsweep: interrupted"

_NO_LIMIT = 1000  # of characters


class HydraCommand(TyperCommand):
    """A command that accepts Hydra overrides, so users may also try Hydra's own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject Hydra's own options with InputError."""
        if not ctx.resilient_parsing:  # an error during completion would garble the user's command line
            refuse_options(args)
        return super().parse_args(ctx, args)


@contextlib.contextmanager
def _report_interrupts() -> Iterator[None]:
    """Report an interrupt, because Typer would exit silently."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(fail(INTERRUPTED, EXIT_INTERRUPTED)) from None


class Commands(TyperGroup):
    """The commands of the core and of features, listed with complete first sentences, which Typer would truncate."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Parse the command line."""
        with _report_interrupts():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Execute a command."""
        with _report_interrupts():
            return super().invoke(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the core commands, then those of the features' commands."""
        return [*super().list_commands(ctx), *(command.name for command in registry.commands())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. Features' commands are imported lazily, so that `--help` stays fast."""
        if (command := super().get_command(ctx, cmd_name)) is not None:
            return command
        return next((_typer_command(each) for each in registry.commands() if each.name == cmd_name), None)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its first sentence, wrapped as needed."""
        rows = [(name, self.commands[name].get_short_help_str(_NO_LIMIT)) for name in super().list_commands(ctx)]
        rows += [(command.name, command.help) for command in registry.commands()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _typer_command(command: registry.Command) -> TyperCommand:
    """Return the Typer command for a feature's function `command.target`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    cls = HydraCommand if command.overrides else None
    app.command(command.name, cls=cls, help=command.help)(registry.load(command.target))
    return typer.main.get_command(app)  # type: ignore[return-value] # an app with one command is that command


def fail(message: str, code: int) -> int:
    """Print why a command failed, and return `code`."""
    typer.echo(escaped(message), err=True)
    return code


def exit_code(command: Callable[[], int]) -> int:
    """Execute a command and return its exit code. Our own errors are printed as a one-line message."""
    try:
        return command()
    except (AccelsweepError, OSError) as error:
        kind = "wrong input" if isinstance(error, InputError) else "error"
        message, code = user_message(error)
        return fail(f"accelsweep: {kind}: {message}", code)
    except KeyboardInterrupt:
        return fail(INTERRUPTED, EXIT_INTERRUPTED)


app = typer.Typer(
    name="accelsweep",
    cls=Commands,
    help="Does a GPU, a bigger batch or a lower precision pay off for your model? One command measures it.",
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
