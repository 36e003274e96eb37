"""The option `--notify`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from accelsweep.redaction import masked

COMMAND = "command:"

NOTIFY_VARIABLE = "ACCELSWEEP_NOTIFY"
"""The environment variable for an address. Unlike an option, it is not visible in `ps`; runs do not inherit it."""


def resolve_addresses(given: Sequence[str] | None) -> list[str]:
    """Return the given addresses, or the address from the environment, which is then removed from it."""
    return list(given or filter(None, [os.environ.pop(NOTIFY_VARIABLE, None)]))


Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        help="notify on completion, first failure or stall: 'command: ...' or an address of apprise",
        callback=resolve_addresses,
    ),
]


def public_form(address: str) -> str:
    """Return an address with secrets stripped: the first word of a command, or the service."""
    if address.startswith(COMMAND):
        return COMMAND + masked(next(iter(address.removeprefix(COMMAND).split()), ""))
    scheme, separator, _ = address.partition("://")
    return f"{scheme}://***" if separator else "***"


def repeated(given: Sequence[str]) -> list[str]:
    """Return the options for the same notifications, with the secrets in their addresses stripped."""
    return [word for address in given for word in ("--notify", public_form(address))]
