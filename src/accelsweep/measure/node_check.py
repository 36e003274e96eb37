"""The surroundings that a job finds on its node: `python -m accelsweep.measure.node_check [--gpu]`.

The last line that it prints is JSON. With `--gpu` the job holds a GPU, and torch has to see it.

A cluster's user sees only the login node. The needs of runs stand on others: Python's packages, devices that torch can
use, folders that can be written.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accelsweep.devices.linux import usable_cores
from accelsweep.installation import __version__
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.significant_digits import gib

Finding = dict[str, Any]


def findings(*, holds_gpu: bool = False) -> Iterator[Finding]:
    """Return what stands on this node, as `CheckResult` takes it; `holds_gpu` where the job asked for a GPU."""
    node = socket.gethostname()
    yield _finding(True, f"Python on {node}", f"{sys.version.split()[0]}, accelsweep {__version__}")
    yield _torch(node, holds_gpu=holds_gpu)
    for name, folder in _folders().items():
        yield _writable(f"{name} on {node}", folder)


def _folders() -> dict[str, Path]:
    return {
        "TMPDIR": Path(tempfile.gettempdir()),
        "working directory": Path.cwd(),
        "HOME": Path(os.environ.get("HOME", "/nonexistent")),
    }


def _torch(node: str, *, holds_gpu: bool) -> Finding:
    what = f"torch on {node}"
    try:
        import torch
    except ImportError as error:
        return _finding(False, what, str(error), "install accelsweep where the node sees it, or name a container")
    found = f"{importlib.metadata.version('torch')}, {_devices()}"
    if holds_gpu and not torch.accelerator.is_available():
        remedy = "its driver may be too old for this torch, torch built without GPUs, or the container not given them"
        return _finding(False, what, f"{found}, although the job holds one", remedy)
    return _finding(True, what, found)


def _devices() -> str:
    import torch

    if not torch.accelerator.is_available():
        return f"no GPU, {usable_cores()} CPU cores"
    kind = torch.accelerator.current_accelerator()
    names = [torch.get_device_module(kind).get_device_name(index) for index in range(torch.accelerator.device_count())]
    return f"{len(names)} x {names[0]}"


def _writable(what: str, folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        strict = not what.startswith("HOME")
        remedy = "runs need to write there" if strict else "some libraries keep caches there; nothing of ours does"
        return _finding(False if strict else None, what, f"{folder} cannot be written: {error.strerror}", remedy)
    return _finding(True, what, f"{folder}, {gib(free)} free")


def _finding(ok: bool | None, what: str, found: str, remedy: str | None = None) -> Finding:
    return {"ok": ok, "what": what, "found": found, "remedy": remedy}


def main(arguments: list[str] | None = None) -> int:
    """Print what is found as JSON, in the last line of the job's log; return the exit code."""
    parser = parser_for("measure.node_check", "Tell what a job finds on its node.")
    parser.add_argument("--gpu", action="store_true", help="the job holds a GPU")
    holds_gpu = parser.parse_args(arguments).gpu
    return exit_code_of(lambda: print(json.dumps({"checks": list(findings(holds_gpu=holds_gpu))})))  # noqa: T201 - the answer


if __name__ == "__main__":
    sys.exit(main())
