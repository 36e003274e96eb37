"""Ctrl-C in the midst of a block that compares versions, and the command that it says to resume with."""

from __future__ import annotations

import re
import shlex
import signal
import time
from pathlib import Path

import pytest
from home import Home
from polling import PATIENCE_SECONDS
from shared_fork_server import beside_the_server
from user_repository import MODULE, git, repository

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest

pytestmark = pytest.mark.real

COMMAND = ("ab", "HEAD~1", "HEAD", "experiment=toy", "batch_size=16,32", "repeats=1", "measure.min_seconds=4")


@pytest.mark.long  # test_interrupted.py ends `run` so, and test_ab.py makes lost trees again; only here both happen
def test_ctrl_c_in_a_block_of_versions_loses_nothing_and_its_own_words_resume(tmp_path: Path, leases: str) -> None:
    home = Home(tmp_path / "für mich", ACCELSWEEP_LEASES=leases, **beside_the_server())
    repository(home.path, {"toy.py": f"{MODULE}# only a comment\n"})
    process = home.start(*COMMAND, "measure.max_steps=1000000")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not home.records("ab-toy"):
        assert time.monotonic() < deadline, "waited in vain for a record"
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, output
    resume = re.search(r"Resume with: accelsweep (.*)", output)
    assert resume is not None, output
    kept = home.records("ab-toy")
    assert 1 <= len(kept) < 4

    again = home.accelsweep(*shlex.split(resume[1]))
    assert again.returncode == 0, again.stdout
    after = home.records("ab-toy")
    assert {name: after[name] for name in kept} == kept
    assert len(after) == 4, "two settings in two versions, none twice"
    folder = SweepFolder(home.path, "ab-toy")
    (block,) = Manifest.read(folder.manifest).blocks
    assert len(block.runs) == len(after), "one block holds all of them, so every pair is whole"
    assert git(home.path, "worktree", "list").count("\n") == 2, "a tree for each version, and none twice"
