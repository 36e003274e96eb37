"""Jobs that are held by cgroups, as on most clusters: the kernel kills one process, and Slurm calls the job failed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from accelsweep.results import Outcome

# executor/test_attempt_outcome.py has the words of such kills; only here cgroups kill in a job of a Slurm that has them
pytestmark = [pytest.mark.slurm, pytest.mark.long, pytest.mark.usefixtures("cgroups")]

HOG = """
import torch
from accelsweep.workloads.image_models import SmallCNN

class Hog(SmallCNN):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.ballast = [torch.ones(100_000_000) for _ in range(10)]  # 4 GB
"""


def test_a_run_that_the_kernel_kills_costs_its_block_nothing_and_no_second_job(home: Any) -> None:
    """Slurm counts the kill and fails the job's step, although the executor went on and finished the block."""
    (home.path / "hog.py").write_text(HOG)
    plain = "accelsweep.workloads.image_models.SmallCNN"
    models = (f"model._target_={plain},hog.Hog", "batch_size=16", "site.slurm.mem_mb=2500")
    models += ("~baseline.batch_size", f"+baseline.model._target_={plain}")
    home.run(*models)
    records = home.records().values()
    assert {record.outcome for record in records} == {Outcome.measured, Outcome.out_of_memory}
    (killed,) = (record for record in records if record.outcome is Outcome.out_of_memory)
    assert {record.attempt for record in records} == {1}
    (job,) = home.submitted()
    told = home.told(job)
    assert "JobState=COMPLETED" not in told, "Slurm has another opinion"
    assert "oom" in home.log().lower()
    assert killed.reason
    assert re.search(r"(\d+) runs, \1 settled already", home.run(*models))
    assert home.submitted() == [job]
