"""Runs Snakemake with its temporary files in FOLDER: `python -m accelsweep.driver.snakemake_main FOLDER OPTIONS`.

Setting TMPDIR would have the same effect, but the variable would also be passed on to jobs on nodes without the folder.
"""

from __future__ import annotations

import runpy
import sys
import tempfile

from accelsweep.garbage_collection import collect_rarely

if __name__ == "__main__":
    collect_rarely()
    tempfile.tempdir = sys.argv.pop(1)
    runpy.run_module("snakemake", run_name="__main__", alter_sys=True)
