"""The caches of torch.compile and Triton: empty for each run, unless its cell asks for a warm cache.

A rank that is killed cannot remove its caches. Its hold on their folder ends with it, so a later rank on the same
machine can remove them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from accelsweep.rank.spec import RunSpec
from accelsweep.state.leftovers import sweep_up_temporary, temporary_folder

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""The variables of the caches' folders; a cell that sets one in its `env` asks for a warm cache."""


def is_warm(spec: RunSpec) -> bool:
    """Return whether the cell's own `env` names a compile cache, so that its first step may be warm."""
    return any(name in spec.config.env for name in CACHE_VARIABLES)


@contextlib.contextmanager
def fresh_caches(spec: RunSpec) -> Iterator[None]:
    """Give compilers empty caches of this run's own, so that compiling is warm only on purpose, never by accident."""
    if is_warm(spec):
        yield
        return
    sweep_up_temporary()
    with temporary_folder("compile") as caches:
        os.environ |= {name: str(caches / name.lower()) for name in CACHE_VARIABLES}
        yield
