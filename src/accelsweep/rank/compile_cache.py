"""The caches of torch.compile and Triton: empty for each run, unless its cell asks for a warm cache.

A rank that is killed cannot remove its caches. Its hold on their folder ends with it, so a later rank on the same
machine can remove them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from accelsweep.rank.spec import RunSpec

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""The variables of the caches' folders; a cell that sets one in its `env` asks for a warm cache."""

_PREFIX = "accelsweep-compile-"
_SETTLED_SECONDS = 60.0
"""A younger folder may have been made by a rank that does not hold it yet."""


def is_warm(spec: RunSpec) -> bool:
    """Return whether the cell's own `env` names a compile cache, so that its first step may be warm."""
    return any(name in spec.config.env for name in CACHE_VARIABLES)


@contextlib.contextmanager
def fresh_caches(spec: RunSpec) -> Iterator[None]:
    """Give compilers empty caches of this run's own, so that compiling is warm only on purpose, never by accident."""
    if is_warm(spec):
        yield
        return
    remove_abandoned()
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as caches,
        _held(Path(caches), or_not=True),
    ):
        os.environ |= {name: str(Path(caches, name.lower())) for name in CACHE_VARIABLES}
        yield


def remove_abandoned() -> None:
    """Remove our caches that no process holds: those of ranks that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            made = folder.lstat()
            if made.st_uid == os.getuid() and time.time() - made.st_mtime > _SETTLED_SECONDS:
                with _held(folder):
                    shutil.rmtree(folder)


@contextlib.contextmanager
def _held(folder: Path, *, or_not: bool = False) -> Iterator[None]:
    """Hold a folder until the block ends, or this process does; raise BlockingIOError if another process holds it.

    Where its disk cannot lock folders, as NFS, this raises OSError; with `or_not` the block goes on without a hold, and
    nobody will remove the folder after a kill.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if not or_not or isinstance(error, BlockingIOError):
                raise
        yield
    finally:
        os.close(descriptor)
