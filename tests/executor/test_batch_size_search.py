"""The search for the largest batch: which batches are tried, what counts as too large, what is recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_executor import TinyBlock

from accelsweep.executor.batch_size_search import Bracket, find_largest, fit_line
from accelsweep.results import Outcome

SEARCH = {"task": "largest_batch", "batch_size": 4}
RULES = {"warmup_steps": 5, "min_steps": 20, "min_seconds": 0.1, "max_steps": 200, "batch_resolution": 0.0}


@given(truth=st.integers(0, 300), first=st.integers(1, 400), most=st.integers(1, 350))
def test_the_search_is_exact_to_one_sample_and_tries_no_batch_twice(truth, first, most):
    tried = []
    found = find_largest(lambda batch: tried.append(batch) or batch <= truth, first, most, 0.0)
    assert found == (Bracket(truth, truth + 1) if truth < most else Bracket(most, None))
    assert len(tried) == len(set(tried)) <= 2 * 9 + 1
    assert max(tried) <= most


@given(truth=st.integers(1, 100_000), resolution=st.sampled_from([0.01, 0.05, 0.3]))
def test_the_resolution_bounds_how_much_larger_the_largest_batch_may_be(truth, resolution):
    found = find_largest(lambda batch: batch <= truth, 32, 200_000, resolution)
    assert found.fits <= truth < found.too_large
    assert found.too_large - found.fits <= max(1, resolution * found.fits)


def test_exact_peaks_give_an_exact_line_with_intervals_of_zero_width():
    found = fit_line([(8, 1080), (16, 1160), (32, 1320)])
    assert (found.per_sample.value, found.fixed.value) == (pytest.approx(10), pytest.approx(1000))
    assert found.per_sample.low == pytest.approx(10)
    assert found.per_sample.high == pytest.approx(10)


def test_the_confidence_interval_of_a_noisy_line_matches_the_textbook_formula():
    """Slope 9.5, residuals -0.5, 1, -0.5 with one degree of freedom: t is 12.706, the error sqrt(1.5 / 2)."""
    found = fit_line([(1, 10), (2, 21), (3, 29)])
    assert found.per_sample.value == pytest.approx(9.5)
    assert found.per_sample.high - found.per_sample.value == pytest.approx(12.7062 * (1.5 / 2) ** 0.5, rel=1e-4)
    assert found.fixed.high - found.fixed.value == pytest.approx(12.7062 * (1.5 * (1 / 3 + 4 / 2)) ** 0.5, rel=1e-4)


@pytest.mark.parametrize("points", [[], [(8, 100)], [(8, 100), (8, 101)]])
def test_fewer_than_two_batches_give_no_line_and_a_reason(points):
    found = fit_line(points)
    assert (found.per_sample.value, found.fixed.value) == (None, None)
    assert "fewer than two" in str(found.per_sample.reason)


def search(tiny_block: TinyBlock, act: str, devices: int = 1, **rules: object):
    config = {**SEARCH, "measure": {**RULES, **rules}}
    code, output = tiny_block.plan(act, devices=devices, config=config, limits={"retries": 0}).run()
    assert code == 0, output
    return tiny_block.record()


@pytest.mark.parametrize("way", ["error", "abort"])
def test_a_run_finds_the_largest_batch_and_records_its_tries(tiny_block, way):
    """Doubling from 4 to 64, then bisecting: 37 fits, 38 does not. Each peak is 1000 bytes and 10 more a sample."""
    record = search(tiny_block, f"holds:37:{way}")
    assert (record.outcome, record.reason, record.steps_sha256) == (Outcome.measured, None, None)
    assert [one.batch_size for one in record.largest_batch.trials] == [4, 8, 16, 32, 64, 48, 40, 36, 38, 37]
    assert [one.batch_size for one in record.largest_batch.trials if not one.fits] == [64, 48, 40, 38]
    assert (record.largest_batch.largest, record.largest_batch.too_large) == (37, 38)
    values = {name: metric.value for name, metric in record.metrics.items()}
    assert values["largest_batch"] == 37.0
    assert values["sampler_cpu_cores"] > 0, "all trials were sampled"
    assert values["bytes_per_sample"] == pytest.approx(10.0)
    assert values["fixed_bytes"] == pytest.approx(1000.0)
    assert values["peak_rank_bytes"] == 1370.0
    assert values["memory_limit_bytes"] == 4096.0
    assert record.metrics["largest_batch"].scope == (
        "per rank, 10% of the free memory reserved; the data's 30 rows are repeated"
    )
    assert "batch 38: " in tiny_block.log()
    assert not (tiny_block.attempt() / "trials").exists()


def test_the_batch_must_fit_on_all_ranks(tiny_block):
    assert search(tiny_block, "holds:9", devices=2).largest_batch.largest == 8


def test_the_search_ends_at_max_batch_and_the_record_says_at_least(tiny_block):
    record = search(tiny_block, "holds:1000000", max_batch=20)
    assert (record.largest_batch.largest, record.largest_batch.too_large) == (20, None)
    assert [one.batch_size for one in record.largest_batch.trials] == [4, 8, 16, 20]
    assert record.metrics["largest_batch"].scope.startswith("at least, up to measure.max_batch=20; per rank")
    assert record.metrics["too_large_batch"].value is None


@pytest.mark.parametrize(("way", "word"), [("segfault", "segmentation fault"), ("kill", "SIGKILL")])
def test_any_other_failure_is_a_crash_with_its_reason_and_its_output(tiny_block, way, word):
    """A SIGKILL that the kernel does not count as out of memory says nothing about memory."""
    record = search(tiny_block, f"holds:5:{way}")
    assert (record.outcome, record.largest_batch) == (Outcome.crashed, None)
    assert record.reason.startswith("with a batch of 8: it was ended by ")
    assert word in record.reason
    assert "batch 4: fits" in tiny_block.log()


def test_a_model_that_fits_not_even_one_sample_is_out_of_memory(tiny_block):
    record = search(tiny_block, "holds:0")
    assert (record.outcome, record.reason) == (Outcome.out_of_memory, "not even a batch of 1 fits: no room")


def test_the_run_time_limit_applies_to_the_whole_search(tiny_block):
    config = {**SEARCH, "measure": RULES}
    limits = {"retries": 0, "run_seconds": 2.0, "stop_grace_seconds": 0.2}
    code, output = tiny_block.plan("hang", config=config, limits=limits).run()
    assert code == 0, output
    assert tiny_block.record().outcome is Outcome.timed_out
    assert tiny_block.record().reason.startswith("with a batch of 4: it ran longer than 2 s")
