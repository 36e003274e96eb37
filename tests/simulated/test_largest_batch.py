"""The largest batch on a device with a memory budget, against the arithmetic."""

from __future__ import annotations

import pytest
from one_rank import BOTH_LOOPS, DIGITS

from accelsweep.executor.batch_size_search import Bracket, find_largest, fit_line
from accelsweep.results import Outcome

MIB = 2**20
STEPS = {"warmup_steps": 2, "min_steps": 1, "max_steps": 1, "min_seconds": 0.0}
EACH = 512 * 1024
"""What a sample takes until its step ends: a multiple of the allocator's grain."""


@BOTH_LOOPS
@pytest.mark.parametrize("headroom", [0.0, 0.25])
def test_a_largest_batch_is_found_exactly(simulated, run, loop, headroom):
    """64 MiB are 128 samples; 25 % kept free leaves 96. Weight, gradient, loss and batch take less than a sample."""
    device, peaks = simulated(memory_bytes=64 * MIB), []

    def fits(batch: int) -> bool:
        device.allocator.empty_cache()
        device.allocator.most = device.allocator.total  # as in a process of its own
        measure = {**STEPS, "headroom": headroom}
        found = run(measure=measure, loop=loop, task="largest_batch", batch_size=batch, each=EACH, data=DIGITS)
        assert found.outcome in (Outcome.measured, Outcome.out_of_memory), found.traceback
        if found.outcome is Outcome.measured:
            assert found.metrics["memory_limit_bytes"].value == 64 * MIB * (1 - headroom)
            assert found.metrics["memory_limit_bytes"].scope == "device memory"
            peaks.append((batch, int(found.metrics["peak_rank_bytes"].value)))
        return found.outcome is Outcome.measured

    truth = int(128 * (1 - headroom)) - 1
    assert find_largest(fits, 4, 4096, 0.0) == Bracket(truth, truth + 1)
    line = fit_line(peaks)
    assert line.per_sample.value == pytest.approx(EACH, rel=0.01)
    assert abs(line.fixed.value) < EACH


def test_a_batch_of_more_rows_than_the_data_have_repeats_them(simulated, run):
    simulated(memory_bytes=2**30)
    found = run(measure=STEPS, loop="raw", task="largest_batch", batch_size=3000, data=DIGITS)
    assert found.outcome is Outcome.measured, found.traceback
    assert found.effective.batch_size == 3000
    assert found.metrics["epoch_samples"].value == 1438.0
