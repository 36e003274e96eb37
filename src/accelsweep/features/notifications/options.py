"""The option `--notify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from accelsweep.redaction import masked

COMMAND = "command:"

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable for a command or URL. Unlike an option, it is not visible in `ps` or inherited by runs."""


def resolve_addresses(given: Sequence[str] | None) -> list[str]:
    """Return the given addresses, or else the one in the environment variable, which is then unset."""
    return list(given or filter(None, [os.environ.pop(NOTIFY_VARIABLE, None)]))


Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        help="notify on completion, first failure or stall: 'command: ...' or an apprise URL",
        callback=resolve_addresses,
    ),
]


def public_form(address: str) -> str:
    """Return an address without secrets: the first word of the command, or the scheme of the URL."""
    if address.startswith(COMMAND):
        return COMMAND + masked(next(iter(address.removeprefix(COMMAND).split()), ""))
    scheme, separator, _ = address.partition("://")
    return f"{scheme}://***" if separator else "***"


def repeated(given: Sequence[str]) -> list[str]:
    """Return the options for the same notifications, without the secrets in their addresses."""
    return [word for address in given for word in ("--notify", public_form(address))]
