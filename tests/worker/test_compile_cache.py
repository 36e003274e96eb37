"""Each run compiles with empty caches of its own, and none of them stays behind, not even a killed run's."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from accelsweep.records.cleanup import remove_ownerless_folders
from accelsweep.worker.rank_setup import CACHE_VARIABLES, empty_compile_caches

HOLDER = """
import sys
from pathlib import Path
from accelsweep.worker.rank_setup import empty_compile_caches
from accelsweep.worker.run_spec import RunSpec
with empty_compile_caches(RunSpec.read(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in CACHE_VARIABLES:
        monkeypatch.setenv(name, "")
    return folder


@pytest.fixture
def holder(spec, tmp_path):
    """A process that holds fresh caches until it is told to end."""
    made = spec()
    made.write()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(made.file())], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()


def grow_old(folder: Path) -> None:
    then = time.time() - 3600
    os.utime(folder, (then, then))


def test_a_run_finds_empty_caches_and_leaves_none(spec, temporary):
    with empty_compile_caches(spec()):
        (caches,) = temporary.iterdir()
        for name in CACHE_VARIABLES:
            assert Path(os.environ[name]).parent == caches
            assert not Path(os.environ[name]).exists()
            Path(os.environ[name], "kernel").mkdir(parents=True)
    assert list(temporary.iterdir()) == []


def test_a_setting_that_names_a_cache_keeps_it(spec, temporary):
    with empty_compile_caches(spec(env={"TRITON_CACHE_DIR": "/somewhere"})):
        assert list(temporary.iterdir()) == []


def test_what_a_killed_rank_left_goes_with_the_next_one(spec, temporary, holder):
    (caches,) = temporary.iterdir()
    (caches / "kernel").touch()
    grow_old(caches)
    with empty_compile_caches(spec()):
        assert caches.exists(), "it is held"
    holder.kill()
    holder.wait()
    with empty_compile_caches(spec()):
        assert not caches.exists()


def test_what_may_be_in_the_making_or_is_not_ours_is_left_alone(temporary, monkeypatch):
    young, foreign, link = temporary / "accelsweep-compile-1", temporary / "torchinductor_me", temporary / "real"
    for folder in (young, foreign, link):
        folder.mkdir()
        grow_old(folder)
    (temporary / "accelsweep-compile-link").symlink_to(link)
    os.utime(young)
    remove_ownerless_folders()
    assert {path.name for path in temporary.iterdir()} == {
        "accelsweep-compile-1", "torchinductor_me", "real", "accelsweep-compile-link"
    }  # fmt: skip
    grow_old(young)
    monkeypatch.setattr(os, "getuid", lambda: -1)
    remove_ownerless_folders()
    assert young.exists()
