"""A rank's threads, its empty compile caches, and the modules of the version that it measures."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from accelsweep.devices import linux, numa
from accelsweep.errors import AccelsweepError, Unsupported
from accelsweep.plain_json import canonical_json
from accelsweep.records.cleanup import remove_ownerless_folders
from accelsweep.run_config import TREE_VARIABLE
from accelsweep.worker.rank_setup import (
    CACHE_VARIABLES,
    RankPlace,
    VersionTree,
    bind_to_numa_node,
    empty_compile_caches,
    threads_of,
)


@pytest.mark.parametrize(("stated", "planned", "threads"), [(2, 3, 2), (2, None, 2), (None, 3, 3), (None, None, 6)])
def test_threads_are_the_settings_or_the_plans_or_a_share_of_the_machine(
    spec, monkeypatch, stated, planned, threads
) -> None:
    monkeypatch.setattr(linux, "allowed_cores", lambda: set(range(12)))
    monkeypatch.setattr(linux, "cpu_quota", lambda: None)
    asked = replace(spec(threads=stated), threads=planned)
    assert threads_of(asked, RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == threads


def test_an_axis_over_the_variable_for_threads_sets_them(spec) -> None:
    assert threads_of(spec(threads=None, env={"OMP_NUM_THREADS": "5"}), RankPlace(0, 0, 2, local_size=2)) == 5


def test_ranks_on_processors_are_distributed_over_the_numa_nodes_and_share_their_cores(spec, monkeypatch) -> None:
    bound = []
    monkeypatch.setattr(numa, "nodes", lambda: {0: {0, 1}, 2: {2, 3}})
    monkeypatch.setattr(numa, "bind", bound.append)
    found = [bind_to_numa_node(spec(numa="auto"), RankPlace(rank, rank, 4, local_size=4)) for rank in range(4)]
    assert found == [(0, 2), (0, 2), (2, 2), (2, 2)]
    assert bound == [0, 0, 2, 2]
    assert bind_to_numa_node(spec(numa=2), RankPlace(0, 0, 3, local_size=3)) == (2, 3)
    assert bind_to_numa_node(spec(), RankPlace(0, 0, 1, local_size=1)) is None


def test_a_machine_with_one_numa_node_leaves_nothing_to_bind(spec, monkeypatch) -> None:
    monkeypatch.setattr(numa, "nodes", lambda: {0: {0, 1}})
    with pytest.raises(Unsupported, match=r"numa=0 has no effect: .* the cores of one NUMA node"):
        bind_to_numa_node(spec(numa=0), RankPlace(0, 0, 1, local_size=1))


def test_a_rank_has_at_least_one_thread(spec, monkeypatch) -> None:
    monkeypatch.setattr(linux, "allowed_cores", lambda: {0})
    assert threads_of(spec(threads=None), RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == 1


def test_in_a_container_with_8_of_64_cores_all_ranks_together_have_8_threads(spec, monkeypatch, tmp_path) -> None:
    """Each began 64 threads where the plan said 8, and against such a processor every GPU looks good."""
    (tmp_path / "membership").write_text("0::/box\n")
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "cpu.max").write_text("800000 100000\n")
    monkeypatch.setattr(linux, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(linux, "CGROUP_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(linux, "allowed_cores", lambda: set(range(64)))
    for ranks, threads in ((1, 8), (2, 4), (16, 1)):
        assert threads_of(spec(threads=None), RankPlace(0, 0, ranks, local_size=ranks)) == threads


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


def test_a_run_has_empty_compile_caches_and_removes_them(spec, temporary):
    with empty_compile_caches(spec()):
        (caches,) = temporary.iterdir()
        for name in CACHE_VARIABLES:
            assert Path(os.environ[name]).parent == caches
            assert not Path(os.environ[name]).exists()
            Path(os.environ[name], "kernel").mkdir(parents=True)
    assert list(temporary.iterdir()) == []


def test_a_cache_named_by_the_setting_is_used(spec, temporary):
    with empty_compile_caches(spec(env={"TRITON_CACHE_DIR": "/somewhere"})):
        assert list(temporary.iterdir()) == []


def test_the_caches_of_a_killed_rank_are_removed_by_the_next_one(spec, temporary, holder):
    (caches,) = temporary.iterdir()
    (caches / "kernel").touch()
    grow_old(caches)
    with empty_compile_caches(spec()):
        assert caches.exists(), "it is held"
    holder.kill()
    holder.wait()
    with empty_compile_caches(spec()):
        assert not caches.exists()


def test_recent_folders_and_those_of_others_are_not_removed(temporary, monkeypatch):
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


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a module in src/, on the path as an editable installation puts it there, and a tree of it."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "src")])
    for root, text in (("src", "present"), ("sweeps/s/versions/1/src", "then")):
        (tmp_path / root).mkdir(parents=True)
        (tmp_path / root / "of_versions.py").write_text(f"STATE = {text!r}\n")
    (tmp_path / "src" / "only_now.py").touch()
    (tmp_path / ".venv/lib/site-packages").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "of_versions", raising=False)
    return tmp_path


@pytest.fixture
def version_tree(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> VersionTree:
    tree = checkout / "sweeps/s/versions/1"
    told = {"name": "HEAD", "tree": str(tree), "checkout": str(checkout), "folders": [str(tree / "src")]}
    monkeypatch.setenv(TREE_VARIABLE, canonical_json({**told, "packages": ["of_versions"]}))
    found = VersionTree.from_environment()
    assert found is not None
    return found


def test_a_versions_tree_replaces_an_editable_installation_on_the_path(version_tree: VersionTree) -> None:
    version_tree.prepend_to_path()
    assert importlib.import_module("of_versions").STATE == "then"
    version_tree.check_modules()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("only_now")


def test_a_module_from_the_checkout_is_refused_with_both_paths(version_tree: VersionTree, checkout: Path) -> None:
    importlib.import_module("of_versions")
    with pytest.raises(AccelsweepError) as refused:
        version_tree.check_modules()
    assert str(checkout / "src" / "of_versions.py") in str(refused.value)
    assert str(version_tree.tree) in str(refused.value)


def test_an_installed_copy_of_a_versioned_package_is_refused_and_other_packages_are_not(
    version_tree: VersionTree, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / ".venv/lib/site-packages"
    other, measured = ModuleType("other"), ModuleType("of_versions.part")
    other.__file__, measured.__file__ = str(installed / "other.py"), str(installed / "of_versions" / "part.py")
    monkeypatch.setitem(sys.modules, "other_of_versions", other)
    version_tree.check_modules()
    monkeypatch.setitem(sys.modules, "of_versions.part", measured)
    with pytest.raises(AccelsweepError, match=r"of_versions\.part was imported from"):
        version_tree.check_modules()


def test_a_run_without_versions_has_no_tree() -> None:
    assert VersionTree.from_environment() is None
