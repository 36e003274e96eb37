"""The option `--notify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from accelsweep.redaction import masked

COMMAND = "command:"

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable that holds an address. No list of processes shows it, and no run inherits it."""


def addresses(given: Sequence[str] | None) -> list[str]:
    """Return the addresses that were given, or that of the environment, which is removed from there."""
    return list(given or filter(None, [os.environ.pop(NOTIFY_VARIABLE, None)]))


Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        help="notify on completion, first failure or stall: 'command: ...' or an address of apprise",
        callback=addresses,
    ),
]


def public_form(address: str) -> str:
    """Return an address without its secrets: the first word of a command, or the service."""
    if address.startswith(COMMAND):
        return COMMAND + masked(next(iter(address.removeprefix(COMMAND).split()), ""))
    scheme, separator, _ = address.partition("://")
    return f"{scheme}://***" if separator else "***"


def repeated(given: Sequence[str]) -> list[str]:
    """Return the options that ask for the same notices, without the secrets of their addresses."""
    return [word for address in given for word in ("--notify", public_form(address))]
