"""A sweep that nobody watches: its command tells of the first failure and of the end, and hides the addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from home import TINY, Home

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,  # features/notifications sends each message, cli/test_run.py reads the option
]

_FAILING = """
from accelsweep.workloads.image_models import SmallCNN

class Failing(SmallCNN):
    def training_step(self, batch, number):
        if len(batch[0]) == 32:
            raise ValueError("shapes 3 and 4 do not match")
        return super().training_step(batch, number)
"""


def test_the_first_failure_and_the_end_are_told_and_a_lost_notice_fails_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", ACCELSWEEP_LEASES=str(tmp_path / "leases"))
    home.experiment("tiny", TINY)
    (home.path / "failing.py").write_text(_FAILING)
    ended = home.accelsweep(
        "run",
        "experiment=tiny",
        "repeats=1",
        "limits.retries=0",
        "model._target_=failing.Failing",
        "--notify",
        "command: cat >> heard.txt",
        "--notify",
        "json://somebody:hunter2@127.0.0.1:9/T0K3N",
    )
    assert ended.returncode == 1, ended.stdout
    first, last = (home.path / "heard.txt").read_text().splitlines()
    assert first.startswith("accelsweep tiny: the first run failed: batch 32, repeat 0  ")
    assert first.endswith("crashed: ValueError: shapes 3 and 4 do not match")
    assert last.startswith("accelsweep tiny: ended, ")
    said = ended.stdout
    assert said.count("the notification to json://*** failed") == 2
    kept = [path for path in home.path.rglob("*") if path.is_file()]
    for secret in ("hunter2", "T0K3N"):
        assert secret not in said
        assert not [path for path in kept if secret.encode() in path.read_bytes()]
