"""One rank of one run: from the frozen config to `rank-R.json` and `rank-R.steps.parquet`.

Imports of torch and Lightning happen inside the functions, so that a supervisor that has them already pays nothing
and a parent that must not have them never gets them.
"""

from __future__ import annotations

from accelsweep.execute.spec import RunSpec


def run_rank(spec: RunSpec) -> None:
    """Run this process's rank of `spec` and leave its result in the attempt's folder.

    The environment holds RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and NODE_RANK. An error of the user's code
    is a result, never an exception: its traceback goes to stderr and into the result.
    """
    raise NotImplementedError(spec.run.name)
