"""Memory numbers and the reasons for those that are missing."""

from __future__ import annotations

import sys

import pytest
import torch

from accelsweep.measure.memory import RankMemory, memory_metrics, rank_memory
from accelsweep.metrics import MEMORY_METRICS


def test_the_fullest_device_stands_for_the_run_and_host_memory_adds_up():
    metrics = memory_metrics([RankMemory(10, 20, 30, 5, {}), RankMemory(12, 19, 31, 6, {})])
    assert metrics["peak_memory_allocated_bytes"].value == 12
    assert metrics["peak_memory_reserved_bytes"].value == 20
    assert metrics["device_memory_used_bytes"].value == 31
    assert metrics["host_pss_bytes"].value == 11
    assert metrics["host_pss_bytes"].scope == "all ranks without loader workers, when the window closed"


def test_what_is_read_is_every_memory_metric_and_no_other():
    assert tuple(memory_metrics([RankMemory(10, 20, 30, 5, {})])) == MEMORY_METRICS


def test_a_cpu_has_a_reason_instead_of_device_memory():
    metrics = memory_metrics([rank_memory(torch.device("cpu"))])
    assert metrics["peak_memory_allocated_bytes"].value is None
    assert "CPU" in metrics["peak_memory_allocated_bytes"].reason


@pytest.mark.skipif(sys.platform != "linux", reason="proportional set size is Linux's")
def test_host_memory_sees_what_was_allocated():
    before = rank_memory(torch.device("cpu")).pss
    block = bytearray(b"x" * 50_000_000)
    after = rank_memory(torch.device("cpu")).pss
    assert 45_000_000 < after - before < 80_000_000
    del block
