"""Untrusted files are data: they are read, set aside or refused by name, and never executed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import subprocess
from collections import Counter

import pytest
from fuzzed import KINDS
from fuzzing import Bench, kind_of, one_try
from side_effect_guard import DRIVER, Forbidden, watched

pytestmark = pytest.mark.heavy

TRIES = 36


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench.made(tmp_path_factory.mktemp("bench"))


def test_hostile_files_do_no_harm(bench, tmp_path):
    became = Counter()
    for number in range(TRIES):
        became[one_try(bench, number, tmp_path)] += 1
    assert set(became) == {"read", "set aside", "refused"}
    assert {kind_of(number) for number in range(TRIES)} == set(KINDS)


class Canary:
    def __reduce__(self):
        return os.mkdir, ("canary",)


@pytest.mark.parametrize(
    "harm",
    [
        lambda _: pickle.loads(pickle.dumps(Canary())),
        lambda _: subprocess.run(["true"], check=True),
        lambda folder: (folder.parent / "elsewhere").write_text("mine"),
        lambda folder: exec(compile("x = 1", str(folder / "theirs.py"), "exec")),
        lambda _: ctypes.CDLL("libc.so.6"),
    ],
    ids=["unpickling", "starting a process", "writing elsewhere", "running a file", "loading a library"],
)
def test_the_guard_detects(harm, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(Forbidden), watched(folder):
        harm(folder)
    assert not list(tmp_path.rglob("canary"))


def test_the_guard_allows_planning_to_look_for_gpus(tmp_path):
    with contextlib.suppress(OSError), watched(tmp_path):
        ctypes.CDLL(DRIVER)
