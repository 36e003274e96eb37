"""The reading and ending of a command line, where that differs from Typer's way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from accelsweep.base.entry import told
from accelsweep.base.errors import EXIT_INTERRUPTED, AccelsweepError, InputError
from accelsweep.base.terminal import escaped

INTERRUPTED = "accelsweep: interrupted"
_NO_LIMIT = 1000


class OfHydra(TyperCommand):
    """A command that takes Hydra's overrides; its users try Hydra's options, too."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say what each of Hydra's options is here. Raises InputError."""
        from accelsweep.commands.line.hydra_options import refuse_options

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

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its sentence, on as many lines as that takes."""
        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(_NO_LIMIT)) for name, command in commands if not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


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
        words, code = told(error)
        return fail(f"accelsweep: {kind}: {words}", code)
    except KeyboardInterrupt:
        return fail(INTERRUPTED, EXIT_INTERRUPTED)
