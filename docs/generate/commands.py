"""Generates the page about commands: the output of `accelsweep COMMAND --help`, read from the command line itself."""

from __future__ import annotations

import typer
from tables import code, plain, table
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from accelsweep.cli.typer_app import app

HEAD = """# Commands

`accelsweep COMMAND --help` shows the same information. `accelsweep --install-completion` enables completion of
commands, options, sweeps and experiments in your shell. [Exit codes](errors.md#exit-codes) are the same for all
commands. `--json` is described in [JSON output](json.md).

"""


def page() -> str:
    """Return the page, in Markdown."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    context = typer.Context(group)
    return HEAD + "\n".join(
        _command(name, command)
        for name in group.list_commands(context)
        if isinstance(command := group.get_command(context, name), TyperCommand)
    )


def _command(name: str, command: TyperCommand) -> str:
    given = [one for one in command.params if isinstance(one, TyperArgument | TyperOption)]
    usage = ["[OPTIONS]", *((one.name or "").upper() for one in given if isinstance(one, TyperArgument))]
    parts = [f"## {name}\n\n{command.help or ''}\n\n```sh\naccelsweep {name} {' '.join(usage)}\n```\n\n"]
    parts.append(f"```sh\n{command.epilog}\n```\n\n")
    rows = [[code(_names(one)), plain(one.help or ""), code(_default(one))] for one in given]
    return "".join([*parts, table(["argument or option", "meaning", "default"], rows)] if rows else parts)


def _names(given: TyperArgument | TyperOption) -> str:
    return ", ".join(given.opts) if isinstance(given, TyperOption) else (given.name or "").upper()


def _default(given: TyperArgument | TyperOption) -> str:
    return "" if given.default in (None, False, True) else str(given.default)
