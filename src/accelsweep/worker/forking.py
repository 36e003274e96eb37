"""Helpers for processes that fork ranks and for the forked ranks: load torch safely, redirect streams, run a rank."""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import traceback
from collections.abc import Callable

from accelsweep.devices import linux
from accelsweep.garbage_collection import collector_paused
from accelsweep.worker.run_spec import RunSpec

RankEntry = Callable[[RunSpec], None]


class UnsafeFork(Exception):
    """Forking is unsafe, because a forked run could hang or find CUDA broken; the message explains why."""


def prepare_to_fork(preload: Callable[[], None]) -> None:
    """Call `preload` and make sure that forking this process is safe. Raises UnsafeFork if it is not."""
    if sys.platform != "linux":
        raise UnsafeFork(f"forking a process with torch loaded is not safe on {sys.platform}")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a CUDA call here would break CUDA in every child
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # for pyarrow's allocator
    with collector_paused():  # looking for garbage takes a sixth of the time of the imports, and finds none
        preload()
    if "torch" in sys.modules:
        from accelsweep.devices.kinds import KINDS

        if initialised := [name for name, kind in KINDS.items() if kind.is_initialised()]:
            raise UnsafeFork(f"{', '.join(initialised)} was initialised by an import")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    if len(linux.thread_names()) > 1:
        raise UnsafeFork(f"an import left threads behind: {', '.join(linux.thread_names())}")
    gc.collect()
    gc.freeze()  # keeps the collector from copying the shared pages in every child


def call(entry: RankEntry, spec: RunSpec) -> int:
    """Call `entry` as this process's main program; return its exit code. Tracebacks are written to stderr."""
    faulthandler.enable()
    code = 0
    try:
        entry(spec)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        sys.stderr.write(f"the run called sys.exit({error.code!r})\n")
    except BaseException:  # noqa: BLE001 - the traceback is all that this process can still report
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def redirect_streams(log: int) -> None:
    """Connect standard input to /dev/null, and standard output and error to the descriptor `log`."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
