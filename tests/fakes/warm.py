"""`python -m MODULE` by a process that has torch and Lightning loaded already, forked as an executor forks its ranks.

A fresh interpreter needs six CPU seconds to import them, before anything that a test looks at. The end-to-end tests
and tests/executor/test_real_runs.py show that fresh interpreters work as well.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "lightning.pytorch",
        "torch.distributed",
        "pandas",
        "accelsweep.worker.rank_measurement",
        "accelsweep.worker.tasks.inference",
        "accelsweep.workloads.instantiate",
    ]
)


def start(module: str, *arguments: str, cwd: Path, environment: Mapping[str, str], output: Path) -> BaseProcess:
    """Start `python -m module arguments` in `cwd` with this environment; `output` gets its output."""
    process = _SERVER.Process(target=_live, args=(module, arguments, str(cwd), dict(environment), str(output)))
    process.start()
    return process


def ended(process: BaseProcess, seconds: float) -> int:
    """Wait for the end; return the exit code. Kills the process and raises TimeoutError after `seconds`."""
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise TimeoutError(f"it did not end within {seconds} s")
    return process.exitcode


def _live(module: str, arguments: tuple[str, ...], cwd: str, environment: dict[str, str], output: str) -> None:
    gc.freeze()  # as an executor does before it forks: a rank looks for garbage three times
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    with open(output, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.path.insert(0, cwd)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
