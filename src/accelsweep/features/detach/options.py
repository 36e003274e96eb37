"""The option `--detach`."""

from __future__ import annotations

from typing import Annotated

import typer

Detach = Annotated[
    bool | None, typer.Option("--detach", help="run in the background (Slurm, systemd or tmux) and return at once")
]
