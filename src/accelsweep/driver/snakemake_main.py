"""Runs Snakemake as told through a pipe: `python -m accelsweep.driver.snakemake_main DESCRIPTOR`.

Snakemake's imports take a second, so the driver may start this process before it knows what to run. Once they are done,
one line of JSON is read: Snakemake's `options`, the `environment`, the `log`, and the folder for `temporary` files, if
it is not the default. Setting TMPDIR would have the same effect, but the variable would also be passed on to jobs on
nodes without the folder. If the pipe is closed instead, nothing is run.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile

from accelsweep.garbage_collection import collect_rarely


def main() -> None:
    """Import what Snakemake and the Snakefile need, wait for the instructions, and follow them."""
    import snakemake.cli  # noqa: F401 - see above

    import accelsweep.driver.snakefile_functions  # noqa: F401 - see above

    with open(int(sys.argv[1]), encoding="utf-8") as pipe:
        line = pipe.readline()
    if not line:
        return
    told = json.loads(line)
    os.environ.clear()
    os.environ.update(told["environment"])
    with open(told["log"], "ab") as log:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(log.fileno(), stream.fileno())
    tempfile.tempdir = told["temporary"]
    sys.argv = ["snakemake", *told["options"]]
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    collect_rarely()
    main()
