"""A rank's CPU threads: the setting's own, else those that the plan knows, else its share of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from accelsweep.devices import linux
from accelsweep.worker.rank_setup import RankPlace, threads_of


@pytest.mark.parametrize(("stated", "planned", "threads"), [(2, 3, 2), (2, None, 2), (None, 3, 3), (None, None, 6)])
def test_the_setting_decides_then_the_plan_and_then_the_machine(spec, monkeypatch, stated, planned, threads) -> None:
    monkeypatch.setattr(linux, "allowed_cores", lambda: set(range(12)))
    monkeypatch.setattr(linux, "cpu_quota", lambda: None)
    asked = replace(spec(threads=stated), threads=planned)
    assert threads_of(asked, RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == threads


def test_a_rank_has_at_least_one_thread(spec, monkeypatch) -> None:
    monkeypatch.setattr(linux, "allowed_cores", lambda: {0})
    assert threads_of(spec(threads=None), RankPlace(rank=0, local_rank=0, size=2, local_size=2)) == 1


def test_in_a_container_of_eight_of_64_cores_all_ranks_together_have_eight_threads(spec, monkeypatch, tmp_path) -> None:
    """Each began 64 threads where the plan said 8, and against such a processor every GPU looks good."""
    (tmp_path / "membership").write_text("0::/box\n")
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "cpu.max").write_text("800000 100000\n")
    monkeypatch.setattr(linux, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(linux, "CGROUP_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(linux, "allowed_cores", lambda: set(range(64)))
    for ranks, threads in ((1, 8), (2, 4), (16, 1)):
        assert threads_of(spec(threads=None), RankPlace(0, 0, ranks, local_size=ranks)) == threads
