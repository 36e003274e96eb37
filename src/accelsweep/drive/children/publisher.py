"""The publisher of a head: it follows the sweep into MLflow, and whatever ends it early costs no run of the copy."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable

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


def finish(publisher: Child, folder: SweepFolder, tracking_uri: str | None, tell: Callable[[str], None]) -> None:
    """Have the publisher copy what is left, and end. Where a signal ends it early, another one does the rest.

    After a few that ended so, `tell` gets a line, as for anything else that MLflow has not got.
    """
    publisher.finish()
    for _ in range(_MOST_FOLLOWERS):
        if publisher.code > 0 or _has_all(folder, tracking_uri):
            break
        with _start(folder, tracking_uri) as publisher:
            publisher.wait()
    if publisher.code != 0:
        catch_up = _command(tracking_uri, "publish", folder.name)
        tell(f"MLflow has not got everything: {_why(publisher)}. To catch up: {catch_up}")


def complaints(publisher: Child) -> list[str]:
    """Return what keeps the publisher from its work while the sweep is measured: the store, or its own early end."""
    if not publisher.running() and publisher.code > 0:
        return [f"{_why(publisher)}{GOES_ON}"]
    return [line for line in last_lines(publisher.log) if line.endswith(GOES_ON)]


def _why(publisher: Child) -> str:
    said = [line for line in last_lines(publisher.log) if line.strip()]
    return said[-1].removeprefix("error: ") if said else f"the publisher ended with {publisher.code}"


def last_line(folder: SweepFolder, tracking_uri: str | None) -> str:
    """Return where the results are in MLflow, or how they get there if it has not got all of them."""
    if _has_all(folder, tracking_uri):
        return f"MLflow: {_command(tracking_uri, 'ui')}"
    return f"MLflow has not got everything: {_command(tracking_uri, 'publish', folder.name)}"


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
