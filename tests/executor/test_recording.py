"""What an executor writes when a run has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from one_rank import make_spec

WRITE_AND_FORK = """
import os
import sys
from pathlib import Path
from accelsweep.executor.recording import merge_tables
from accelsweep.executor.sampler import Samples
from accelsweep.worker.forking import prepare_to_fork
from accelsweep.worker.run_spec import RunSpec

folder, environment = Path(sys.argv[1]), dict(os.environ)
spec = RunSpec.read(folder / "run-spec.json")
assert merge_tables(spec, folder / "steps.parquet", Samples([{"seconds": 1.0}]), {}, folder / "series.parquet")
assert os.environ == environment, "the runs of a block have the same variables"
prepare_to_fork(lambda: None)
"""


def test_a_process_that_has_written_a_runs_tables_can_still_fork(tmp_path: Path) -> None:
    spec = make_spec(tmp_path)
    spec.write()
    spec.rank_steps(0).write_text(
        '{"rank": 0, "warmup_steps": 1, "step_seconds": [2, 1], "samples": [8, 8], "train_loss": [1, null]}'
    )
    command = [sys.executable, "-c", WRITE_AND_FORK, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "steps.parquet").exists()
    assert (tmp_path / "series.parquet").exists()
