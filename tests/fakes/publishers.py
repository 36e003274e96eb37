"""Publishers in processes of their own, which forked.py forks from one process that has imported MLflow.

A fresh interpreter needs four CPU seconds for that import. End-to-end tests of sweeps do start fresh ones.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from accelsweep.records.layout import SweepFolder
from accelsweep.tracking import run_writer  # noqa: F401 - imported before forking, as are the modules below
from accelsweep.tracking.live_publishing import main as publish_command
from accelsweep.tracking.publisher import publish

# isort: split
import mlflow.artifacts
import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def main() -> int:
    """Run `log FILE ARGUMENTS...`, the command with its output in a file, or `kill ...`, which kills it midway."""
    task, *rest = sys.argv[1:]
    return _log(*rest) if task == "log" else _kill(*rest)


def _log(log: str, *arguments: str) -> int:
    with Path(log).open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    return publish_command(list(arguments))


def _kill(home: str, name: str, uri: str, seed: str, kills: str, longest: str) -> int:
    generator = random.Random(int(seed))
    killed = 0
    while killed < int(kills):
        child = os.fork()
        if child == 0:
            publish(SweepFolder(Path(home), name), uri, echo=lambda _: None)
            os._exit(0)
        time.sleep(generator.uniform(0, float(longest)))
        os.kill(child, signal.SIGKILL)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            break
        killed += 1
    sys.stdout.write(f"{killed}\n")
    return 0
