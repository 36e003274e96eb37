"""The process that samples a run: it ends with the run, and what it cannot read leaves a gap."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from accelsweep.executor.device_lease import NO_LEASE, Lease
from accelsweep.executor.sampler import Sampler, read_samples

pytestmark = pytest.mark.real


def test_rows_come_at_the_interval_with_the_ranks_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with Sampler(path, 0.02, "cpu", NO_LEASE) as sampler:
        time.sleep(0.1)
        sampler.watch({0: os.getpid()})
        time.sleep(0.2)
    rows, summary = read_samples(path)
    assert 4 <= len(rows) <= 17, "a busy machine may skip some"
    gaps = [after["seconds"] - before["seconds"] for before, after in pairwise(rows[:-1])]
    assert min(gaps) > 0.0
    assert sorted(gaps)[len(gaps) // 2] > 0.015
    assert "rank0_rss_bytes" not in rows[0]
    assert rows[-1]["rank0_rss_bytes"] > 1e7
    assert rows[-1]["host_memory_bytes"] > 1e7
    assert 0 < summary["cpu_seconds"] < 5


def test_no_interval_means_no_process_and_no_file(tmp_path: Path) -> None:
    before = psutil.Process().children()
    with Sampler(tmp_path / "samples.jsonl", None, "cpu", NO_LEASE) as sampler:
        sampler.watch({0: os.getpid()})
        assert psutil.Process().children() == before
    assert read_samples(tmp_path / "samples.jsonl") == ([], {})


def test_a_sampler_that_was_killed_disturbs_nobody_and_its_rows_remain(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with Sampler(path, 0.005, "cpu", NO_LEASE) as sampler:
        time.sleep(0.4)
        (child,) = (each for each in psutil.Process().children() if each.pid == sampler.process)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        sampler.watch({0: os.getpid()})
    rows, summary = read_samples(path)
    assert len(rows) >= 20
    assert summary == {}


def test_devices_that_no_driver_knows_leave_no_columns_and_the_machine_is_sampled(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with Sampler(path, 0.02, "cuda", Lease("cuda", ("0",), ())):
        time.sleep(0.1)
    rows, summary = read_samples(path)
    assert rows
    assert not any(column.startswith("gpu") for row in rows for column in row)
    assert all("host_memory_bytes" in row for row in rows)
    powered = any("package_power_watts" in row for row in rows)
    assert powered is ("package" not in summary["reasons"]), "what is missing has its reason"
