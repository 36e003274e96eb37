"""The publisher of a head: it follows the sweep into MLflow, and whatever ends it early costs no run of the copy."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import signal
import sys
from pathlib import Path

from accelsweep.base.errors import DamagedFile
from accelsweep.base.secrets import masked
from accelsweep.drive.children.processes import Child
from accelsweep.publish.state import up_to_date
from accelsweep.publish.store.location import GOES_ON
from accelsweep.state.folders import SweepFolder
from accelsweep.state.tail import last_lines

_MOST_FOLLOWERS = 3


def follow(folder: SweepFolder, tracking_uri: str | None) -> Child:
    """Start a publisher that goes on until it is finished, or until this process ends."""
    return _start(folder, tracking_uri, "--follow", "--until-pid", str(os.getpid()))


def finish(publisher: Child, folder: SweepFolder, tracking_uri: str | None) -> None:
    """Have the publisher copy what is left, and end. Where a signal ends it early, another one does the rest.

    After a few that ended so, its log says by which signal: `last_line` reads there why MLflow lacks something.
    """
    publisher.finish()
    for _ in range(_MOST_FOLLOWERS):
        if publisher.code > 0 or _has_all(folder, tracking_uri):
            break
        with _start(folder, tracking_uri) as publisher:
            publisher.wait()
    if publisher.code < 0:
        with folder.publish_log.open("a", encoding="utf-8") as log:
            log.write(f"\nthe process that copies was ended by {signal.Signals(-publisher.code).name}\n")


def complaints(publisher: Child) -> list[str]:
    """Return what keeps the publisher from its work while the sweep is measured: the store, or its own early end."""
    if not publisher.running() and publisher.code > 0:
        return [f"{_why(publisher.log) or f'the process that copies ended with {publisher.code}'}{GOES_ON}"]
    return [line for line in last_lines(publisher.log) if line.endswith(GOES_ON)]


def _why(log: Path) -> str | None:
    """Return the last that a publisher said, without the end of its sentence."""
    said = [line for line in last_lines(log) if line.strip()]
    return said[-1].removeprefix("error: ").removesuffix(GOES_ON).rstrip(".") if said else None


def last_line(folder: SweepFolder, tracking_uri: str | None) -> tuple[str, bool]:
    """Return where the results are in MLflow, or why it has not got all of them; and whether the copy is complete.

    Where MLflow is not installed, nobody expects them there.
    """
    if _has_all(folder, tracking_uri):
        return f"MLflow: {_command(tracking_uri, 'ui')}", True
    installed = importlib.util.find_spec("mlflow") is not None
    reason = _why(folder.publish_log) if installed else "it is not installed here (pip install mlflow)"
    catch_up = _command(tracking_uri, "publish", folder.name)
    has_remedy = reason is not None and "--anew" in reason  # a plain `publish` would be refused again
    return (
        f"MLflow has not got everything: {reason or 'nothing was copied yet'}"
        + ("" if has_remedy else f". To catch up: {catch_up}"),
        not installed,
    )


def _command(tracking_uri: str | None, *words: str) -> str:
    """Return a command on the store that was asked for, without the password in its address."""
    store = ["--tracking-uri", masked(tracking_uri)] if tracking_uri else []
    return shlex.join(["accelsweep", *words, *store])


def _start(folder: SweepFolder, tracking_uri: str | None, *options: str) -> Child:
    command = [sys.executable, "-P", "-m", "accelsweep.publish", str(folder.root), *options]
    variables = {"MLFLOW_TRACKING_URI": tracking_uri} if tracking_uri else {}
    return Child.start(command, cwd=folder.home, log=folder.publish_log, variables=variables)


def _has_all(folder: SweepFolder, tracking_uri: str | None) -> bool:
    with contextlib.suppress(FileNotFoundError, DamagedFile):
        return up_to_date(folder, tracking_uri)
    return True  # there is nothing to copy
