"""Checks a compute node from within a job: `python -m accelsweep.measure.node_check [--gpu]`.

The login node reveals little about the nodes on which runs will execute: which packages are installed, which devices
torch can use, and which folders are writable. `--gpu` means that the job has a GPU, which torch must detect. The last
line printed is JSON.
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
    """Yield checks of this node as arguments for `CheckResult`; set `holds_gpu` if the job has a GPU."""
    node = socket.gethostname()
    yield _finding(True, f"Python on {node}", f"{sys.version.split()[0]}, accelsweep {__version__}")
    yield _torch(node, holds_gpu=holds_gpu)
    yield _writable(f"TMPDIR on {node}", Path(tempfile.gettempdir()))
    yield _writable(f"working directory on {node}", Path.cwd())
    yield _writable(f"HOME on {node}", Path(os.environ.get("HOME", "/nonexistent")))


def _torch(node: str, *, holds_gpu: bool) -> Finding:
    what = f"torch on {node}"
    try:
        import torch
    except ImportError as error:
        return _finding(
            False, what, str(error), "install accelsweep where the node can access it, or specify a container"
        )
    version = importlib.metadata.version("torch")
    if torch.accelerator.is_available():
        kind = torch.accelerator.current_accelerator()
        name = torch.get_device_module(kind).get_device_name(0)
        return _finding(True, what, f"{version}, {torch.accelerator.device_count()} x {name}")
    found = f"{version}, no GPU, {usable_cores()} CPU cores"
    if holds_gpu:
        remedy = (
            "the driver may be too old for this torch, torch may lack GPU support, or the container may lack the GPUs"
        )
        return _finding(False, what, f"{found}, although the job has one", remedy)
    return _finding(True, what, found)


def _writable(what: str, folder: Path) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        required = not what.startswith("HOME")
        remedy = "runs need to write there" if required else "some libraries keep caches there; accelsweep does not"
        return _finding(False if required else None, what, f"{folder} is not writable: {error.strerror}", remedy)
    return _finding(True, what, f"{folder}, {gib(free)} free")


def _finding(ok: bool | None, what: str, found: str, remedy: str | None = None) -> Finding:
    return {"ok": ok, "what": what, "found": found, "remedy": remedy}


def main(arguments: list[str] | None = None) -> int:
    """Print the checks as JSON on the last line of the job's log; return the exit code."""
    parser = parser_for("measure.node_check", "Check the compute node of this job.")
    parser.add_argument("--gpu", action="store_true", help="the job has a GPU")
    holds_gpu = parser.parse_args(arguments).gpu
    return exit_code_of(lambda: print(json.dumps({"checks": list(findings(holds_gpu=holds_gpu))})))  # noqa: T201  the result


if __name__ == "__main__":
    sys.exit(main())
