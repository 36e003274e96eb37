"""The Typer application: handles Hydra's options, features' commands, interrupts and errors."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from accelsweep import registry
from accelsweep.driver.request import FIRST_COMMANDS
from accelsweep.errors import EXIT_INTERRUPTED, AccelsweepError, InputError
from accelsweep.installation import __version__
from accelsweep.signals import user_message
from accelsweep.significant_digits import escaped

_NO_MULTIRUN = "not needed for a sweep: give a key several values, as in batch_size=32,64"

_ONE_CONFIG = "accelsweep has its own config: put your keys and groups in conf/, and experiments in conf/experiment/"

_SHOW = "write --cfg job; interpolations are shown unresolved"

OPTIONS: Mapping[str, str] = {
    "-m": _NO_MULTIRUN,
    "--multirun": _NO_MULTIRUN,
    "-r": "`accelsweep run` already runs the sweep",
    "--run": "`accelsweep run` already runs the sweep",
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


def script_options_as_overrides(arguments: Sequence[str], ours: Collection[str]) -> list[str]:
    """Return the arguments with `--NAME=VALUES` of the user's script as `arg.NAME=VALUES`.

    `ours` are accelsweep's options. A name similar to one of them stays as it is: it is probably mistyped, and Click
    suggests the right one.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    names = {option.lstrip("-") for option in ours}

    def override(argument: str) -> str:
        name, equals, values = argument.partition("=")
        theirs = equals and re.fullmatch(r"--[A-Za-z][\w-]*", name)
        similar = difflib.get_close_matches(name[2:], names, cutoff=0.75)
        return f"arg.{name[2:]}={values}" if theirs and not similar else argument

    return [*map(override, arguments[:end]), *arguments[end:]]


INTERRUPTED = "accelsweep: interrupted"

_HELP_WIDTH = 100
"""The maximum width of help texts in characters; longer lines are hard to read."""


def _bold(text: str) -> str:
    """Return `text` in bold; Typer removes the style if the output is not a terminal."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, bold=True)


_CONTEXT_SETTINGS = {"max_content_width": _HELP_WIDTH}


def examples_text(examples: Mapping[str, str]) -> str:
    """Return examples as lines for the shell: for each command, its purpose as a comment, then the command."""
    return "\n".join(f"# {purpose}\n{line}" for line, purpose in examples.items())


def _write_bold_headings(formatter: Any) -> None:
    write = formatter.write_heading
    formatter.write_heading = lambda heading: write(_bold(heading))


def _write_examples(formatter: Any, examples: str | None) -> None:
    """Write lines of `examples_text` as they are, because a wrapped command could not be copied."""
    with formatter.section("Examples"):
        for line in (examples or "").splitlines():
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class _WithExamples:
    """The help of a command or a group whose epilog consists of examples."""

    epilog: str | None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help text with bold headings."""
        _write_bold_headings(formatter)
        super().format_help(ctx, formatter)  # type: ignore[misc]  # Typer's class, which comes next, has it

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        del ctx
        _write_examples(formatter, self.epilog)


class SweepCommand(_WithExamples, TyperCommand):
    """A command whose epilog consists of examples."""


class HydraCommand(SweepCommand):
    """A command that accepts Hydra overrides, so users may also try Hydra's own options, and those of their script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject Hydra's own options with InputError, and turn options of the user's script into overrides."""
        if not ctx.resilient_parsing:  # an error during completion would garble the user's command line
            refuse_options(args)
        ours = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        return super().parse_args(ctx, script_options_as_overrides(args, ours))


@contextlib.contextmanager
def _report_interrupts() -> Iterator[None]:
    """Report an interrupt, because Typer would exit silently."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(fail(INTERRUPTED, EXIT_INTERRUPTED)) from None


class Commands(_WithExamples, TyperGroup):
    """The commands of the core and of features, listed by group (`registry.COMMAND_GROUPS`) with their purposes."""

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
        """Write every command with its purpose, group by group. Nothing is imported or truncated."""
        del ctx
        core: Mapping[str, Any] = self.commands
        listed = [(command.rich_help_panel, name, command.help or "") for name, command in core.items()]
        listed += [(command.group, command.name, command.help) for command in registry.commands()]
        width = max(len(name) for _, name, _ in listed)
        for group in registry.COMMAND_GROUPS:
            rows = [(f"{name:<{width}}", _purpose(text)) for of, name, text in listed if of == group]
            with formatter.section(group):
                formatter.write_dl(rows)


def _purpose(text: str) -> str:
    """Return the first sentence of a help text, without its full stop."""
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


def command(
    group: str, examples: Mapping[str, str], *, overrides: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a core command, whose docstring is its purpose. See `registry.Command` for the arguments."""
    cls = HydraCommand if overrides else SweepCommand
    return app.command(cls=cls, rich_help_panel=group, epilog=examples_text(examples))


def _typer_command(command: registry.Command) -> TyperCommand:
    """Return the Typer command for a feature's function `command.target`."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=_CONTEXT_SETTINGS)
    cls = HydraCommand if command.overrides else SweepCommand
    register = app.command(command.name, cls=cls, help=command.help, epilog=examples_text(command.examples))
    register(registry.load(command.target))
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
    epilog=examples_text(FIRST_COMMANDS),
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_CONTEXT_SETTINGS,
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
