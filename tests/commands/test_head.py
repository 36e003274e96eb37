"""One head a sweep: a second one is refused with the first one's name, a dead one's claim is taken over."""

import os
import subprocess
import sys

import psutil
import pytest

from accelsweep.commands.head import claimed, living_head
from accelsweep.core.errors import AccelsweepError
from accelsweep.core.folders import SweepFolder


@pytest.fixture
def folder(tmp_path):
    return SweepFolder(tmp_path, "sweep")


def test_a_second_head_is_refused_with_the_process_of_the_first(folder):
    with claimed(folder), pytest.raises(AccelsweepError, match=f"process {os.getpid()}"), claimed(folder):
        pass


def test_the_claim_ends_with_the_head(folder):
    with claimed(folder):
        assert living_head(folder).pid == os.getpid()
    assert living_head(folder) is None


def test_the_claim_of_a_dead_head_is_taken_over(folder, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = psutil.Process(child.pid).create_time()
    child.wait()
    with claimed(folder):
        claim = living_head(folder).model_copy(update={"pid": child.pid, "process_started": started})
    claim.write(folder.root / "head.claim.json")
    assert living_head(folder) is None
    with claimed(folder):
        assert living_head(folder).pid == os.getpid()


def test_another_process_with_the_same_number_is_not_taken_for_the_head(folder):
    with claimed(folder):
        claim = living_head(folder).model_copy(update={"process_started": 1.0})
    claim.write(folder.root / "head.claim.json")
    assert living_head(folder) is None
